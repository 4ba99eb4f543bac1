package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"dynamiccl/cmd/dynamiccld/internal/config"
	"dynamiccl/cmd/dynamiccld/internal/doctor"
	"dynamiccl/cmd/dynamiccld/internal/launch"
	"dynamiccl/cmd/dynamiccld/internal/units"
	"dynamiccl/cmd/dynamiccld/internal/workers"
	"dynamiccl/cmd/internal/ending"
)

// measuring is what commands need that measure NCCL on this machine's GPUs.
type measuring struct {
	program
	worker, nccl string
	executable   string   // this program
	refused      []string // what was said of kernels that ranks refuse
}

// ncclLibrary is what programs load.
const ncclLibrary = "libnccl.so.2"

func (m *measuring) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&m.nccl, "nccl-lib", "", "libnccl.so.2 to measure (default: the loader's, else that of Python's nvidia.nccl)")
	flags.StringVar(&m.worker, "worker", "", "program of a rank (default: dynamiccl-worker beside this program)")
	flags.StringVar(&m.pluginDir, "plugin-dir", "", "folder of the plugin (default: ../lib beside this program, else its own folder)")
}

// setup is what a program of the app would get; its notes go to standard error.
func (m *measuring) setup(a *app) (launch.Setup, error) {
	for _, warning := range config.EnvWarnings(a.environ) {
		a.note(warning)
	}
	setup := m.prepare(a, config.Config{})
	if setup.Why != "" {
		return setup, errors.New("nothing is measured: " + strings.TrimPrefix(setup.Why, launch.PlainNCCL))
	}
	for _, note := range setup.Notes {
		a.note(note)
	}
	return setup, nil
}

// connected is the context of a command that has something to clear away when it ends: a lost connection ends it in order, as Ctrl-C
// does, but not under nohup.
func connected(parent context.Context) (ctx context.Context, release func()) {
	if signal.Ignored(syscall.SIGHUP) {
		return parent, func() {}
	}
	return ending.Also(parent, syscall.SIGHUP)
}

// keeping is that of one that has measurements to keep, too: who read what it says may be gone with the connection, or have heard
// enough, and measuring goes on.
func keeping(parent context.Context) (ctx context.Context, release func()) {
	unread := make(chan os.Signal, 1)
	signal.Notify(unread, syscall.SIGPIPE) // not Ignore, which ranks would inherit
	ctx, stop := connected(parent)
	return ctx, func() {
		stop()
		signal.Stop(unread)
	}
}

func (a *app) note(text string) { fmt.Fprintf(a.stderr, "dynamiccld: %s\n", text) }

// parseSizes reads --sizes.
func parseSizes(texts []string) (sizes []uint64, err error) {
	for _, text := range texts {
		n, err := units.ParseBytes(text)
		if err != nil {
			return nil, fmt.Errorf("--sizes: %w", err)
		}
		sizes = append(sizes, n)
	}
	return sizes, nil
}

// once leaves out what was named before.
func once[T comparable](all []T) (kept []T) {
	for _, x := range all {
		if !slices.Contains(kept, x) {
			kept = append(kept, x)
		}
	}
	return kept
}

// environ is the environment of ranks of so many nodes. Notes go to standard error; net: the nodes are faked over whatever network there
// is; timed: their calls are to be timed as those of a program are.
func (m *measuring) environ(a *app, nodes int, net, timed bool) ([]string, error) {
	setup, err := m.setup(a)
	if err != nil {
		return nil, err
	}
	if devices, err := os.ReadDir(a.sysroot + "/sys/class/infiniband"); err == nil && len(devices) > 0 && nodes > 1 && net &&
		a.getenv("NCCL_IB_DISABLE") == "" && a.getenv("NCCL_NET") == "" {
		a.note("this machine has InfiniBand or RoCE, which NCCL may take between nodes: set NCCL_IB_DISABLE=1 for sockets")
	}
	environ := a.workerEnviron(setup, timed)
	m.sayRefused(a, a.refusedKernels(environ, nodes > 1))
	return environ, nil
}

// onTerminal says that standard error is one.
func (a *app) onTerminal() bool {
	file, ok := a.stderr.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// workerEnviron is the environment of ranks: ours with the plugin and the preload library, which has our kernels and, where
// calls are to be timed, times them, and nothing else of DynamICCL's. If the user wants that, NCCL's kernel events time them.
func (a *app) workerEnviron(setup launch.Setup, timed bool) []string {
	var variables []launch.Variable
	kernels := config.SwitchedOn(a.getenv, config.KernelEventsVariable)
	for _, v := range setup.Variables {
		if strings.HasPrefix(v.Name, "NCCL_") || v.Name == "LD_PRELOAD" && !kernels {
			variables = append(variables, v)
		}
	}
	if timed && kernels { // stream calls alone are sampled
		variables = append(variables, launch.Variable{Name: config.NoGraphsVariable, Value: "1"})
	}
	if a.getenv("NCCL_DEBUG") == "" {
		variables = append(variables, launch.Variable{Name: "NCCL_DEBUG", Value: "WARN"})
	}
	return slices.DeleteFunc(launch.Environ(a.environ, variables), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return slices.Contains(launch.OwnVariables, name)
	})
}

// ownSettings begin the names of our variables that change what is measured: which kernels there are, in how much memory, and who moves
// what goes over sockets. Others say where a daemon is, what it does, or what is written where.
var ownSettings = []string{"DYNAMICCL_NO_KERNELS", "DYNAMICCL_KERNEL", "DYNAMICCL_SCRATCH_", "DYNAMICCL_GIN", "DYNAMICCL_CARRIER", "DYNAMICCL_SOCKET_THREADS",
	"DYNAMICCL_NO_DLSYM", "DYNAMICCL_NO_GRAPHS", "DYNAMICCL_NEW_GRAPHS"}

// settings are NCCL's variables, and ours, that change what is measured.
func settings(environ []string) (all []string) {
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		nccl := strings.HasPrefix(name, "NCCL_") && !strings.HasPrefix(name, "NCCL_DEBUG") && name != "NCCL_TUNER_PLUGIN" && name != "NCCL_PROFILER_PLUGIN"
		if nccl || slices.ContainsFunc(ownSettings, func(own string) bool { return strings.HasPrefix(name, own) }) {
			all = append(all, e)
		}
	}
	return all
}

// checkFlags says what is wrong with flags, before the machine is looked at: wrong is wrong with GPUs and without. ranks that is 0,
// for as many as there are GPUs, is taken for the fewest that would do.
func (m *measuring) checkFlags(ranks *int, nodes int, check func() error) error {
	if *ranks == 0 {
		*ranks = fewestRanks(nodes)
		defer func() { *ranks = 0 }()
	}
	if err := check(); err != nil {
		return usageError(err)
	}
	for _, f := range []struct {
		name string
		path *string
	}{{"worker", &m.worker}, {"nccl-lib", &m.nccl}} {
		if *f.path == "" {
			continue
		}
		_, err := os.Stat(*f.path)
		if err == nil {
			*f.path, err = filepath.Abs(*f.path) // a name without a slash would be looked for elsewhere
		}
		if err != nil {
			return usageError(fmt.Errorf("--%s: %w", f.name, err))
		}
	}
	return nil
}

func fewestRanks(nodes int) int { return max(2, nodes) }

// find looks for what is run: programs, GPUs, NCCL. ranks that is 0 becomes the number of GPUs.
func (m *measuring) find(ctx context.Context, a *app, ranks *int) (err error) {
	if m.executable, err = os.Executable(); err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	if m.worker == "" {
		if m.worker, err = workers.FindProgram(m.executable); err != nil {
			return err
		}
	}
	if *ranks == 0 {
		if *ranks, err = workers.CountGPUs(ctx, a.getenv); err != nil {
			return err
		}
	}
	if m.nccl != "" {
		return nil
	}
	if loaders := doctor.Library(doctor.Host{Getenv: a.getenv, Root: a.sysroot}, ncclLibrary); loaders != "" {
		if pythons, err := workers.PythonNCCL(ctx); err == nil && !launch.SameFile(loaders, pythons) { // measured is the one, programs of PyTorch load the other
			a.note(fmt.Sprintf("NCCL is the loader's, %s; what programs load that python3 brings along: --nccl-lib %s", loaders, pythons))
		}
		return nil
	}
	if m.nccl, err = workers.PythonNCCL(ctx); err != nil {
		return fmt.Errorf("the loader finds no %s and %w; install NCCL, or name the file with --nccl-lib", ncclLibrary, err)
	}
	return nil
}
