package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"dynamiccl/cmd/dynamiccld/internal/config"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/doctor"
	"dynamiccl/cmd/dynamiccld/internal/launch"
	"dynamiccl/cmd/dynamiccld/internal/render"
	"dynamiccl/models"
	"dynamiccl/nccltuner"
	"dynamiccl/tuner"
)

// watchEvery is how often a run looks whether its daemon lives.
const watchEvery = 200 * time.Millisecond

// reportWithin bounds how long the end of a command is held up by the question of what was gained: a busy machine's daemon answers late,
// and one that is stopped is not waited for so long.
const reportWithin = 5 * time.Second

// serveSettings are the settings of a daemon that `run` hands on when it starts one.
var serveSettings = []string{"store", "learner", "policy", "reward", "step-guard", "explore-budget", "trace"}

// program are the flags of what a program gets: run and env have them.
type program struct {
	pluginDir string
	scratch   launch.ScratchMiB
	total     launch.ScratchTotalMiB
}

func (p *program) flags(a *app, cmd *cobra.Command) {
	a.settingFlags(cmd, "dir", "no-explore", "fixed-numerics")
	cmd.Flags().Var(&p.scratch, "scratch-mib", fmt.Sprintf("GPU memory of a communicator that our kernels use, 1 to %d, alike on all ranks (default: %s, else %d)",
		launch.MostScratchMiB, launch.ScratchVariable, launch.DefaultScratchMiB))
	cmd.Flags().Var(&p.total, "scratch-total-mib", fmt.Sprintf("GPU memory of all communicators of a process that our kernels use on one GPU, 1 to %d; who finds no room runs NCCL's kernels (default: %s, else %d)",
		launch.MostScratchTotalMiB, launch.ScratchTotalVariable, launch.DefaultScratchTotalMiB))
	cmd.Flags().StringVar(&p.pluginDir, "plugin-dir", "", "folder of the plugin (default: ../lib beside this program, else its own folder)")
}

// settingFlags adds some of serve's settings.
func (a *app) settingFlags(cmd *cobra.Command, names ...string) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.AddFlags(all, a.host())
	for _, name := range names {
		cmd.Flags().AddFlag(all.Lookup(name))
	}
}

// ncclSettings are the user's, of the environment and of NCCL's files.
func (a *app) ncclSettings() map[string]string {
	return doctor.NCCLSettings(doctor.Host{Getenv: a.getenv, Root: a.sysroot})
}

// prepare says what the program's environment needs.
func (p *program) prepare(a *app, cfg config.Config) launch.Setup {
	wish := launch.Wish{Dir: cfg.Dir, NoExplore: cfg.NoExplore, FixedNumerics: cfg.Fixed, ScratchMiB: p.scratch, ScratchTotal: p.total,
		User: a.ncclSettings(), Preload: a.getenv("LD_PRELOAD"), HandedOn: launch.HandedOn(a.environ)}
	wish.TimesItself = config.SwitchedOn(a.getenv, config.NoGraphsVariable) && config.SwitchedOn(a.getenv, config.KernelEventsVariable)
	exe, err := os.Executable()
	if err == nil {
		wish.Plugin, err = launch.FindPlugin(p.pluginDir, exe)
	}
	wish.PluginErr = err
	return launch.Prepare(wish)
}

// runner is one `dynamiccld run`.
type runner struct {
	*app
	program
	quiet  bool
	cfg    config.Config
	setup  launch.Setup
	given  []string       // settings of serve's, as flags
	daemon *launch.Daemon // nil: none
	id     uint64
	lost   bool // it was said that what is learned is lost
}

func (a *app) runCommand() *cobra.Command {
	r := &runner{app: a}
	cmd := &cobra.Command{
		Use:   "run [flags] [--] COMMAND [ARGUMENT...]",
		Short: "Run a program tuned: start or join the daemon, set NCCL's variables, say what was gained",
		Long: `Run a program with DynamICCL. A daemon is started where none serves the directory, and
ends with the last run and what its command has left in the background; a daemon that serves
already is joined. The program gets NCCL_TUNER_PLUGIN, NCCL_PROFILER_PLUGIN, LD_PRELOAD
(libdynamiccl.so, which times calls, before yours), DYNAMICCL_DIR, NCCL_SET_STACK_SIZE=1 and
NCCL_SYM_NOWIN_ENABLE=1 (not with --fixed-numerics); only variables travel, so launchers and
scripts that fork need no more:

  dynamiccld run -- torchrun --nproc-per-node 8 train.py

What you have set of these is kept, and said. Whatever fails on our side, the program
runs, as with plain NCCL. Its streams, signals and exit code are its own; what run has to say
goes to standard error, --quiet silences it. At the end it says what was gained, by
collective and size, from the calls that were measured.

Exit codes: the program's; 128 and the signal's number when one ended it; 127 when it is not
found, 126 when it cannot be executed; 2 for wrong flags.

--no-explore uses what the store knows and tries nothing. --fixed-numerics lets no choice
change a sum: AllReduce, ReduceScatter and Reduce keep NCCL's own choice, and none of our kernels
runs them; what only copies (AllGather, Broadcast, AllToAll) is tuned. Both hold for this program
alone. --learner, --store, --policy, --reward, --step-guard, --explore-budget and --trace are
those of 'dynamiccld serve', for a daemon that run starts.`,
		Example: `  dynamiccld run -- torchrun --nproc-per-node 8 train.py
  dynamiccld run --fixed-numerics -- mpirun -n 4 ./all_reduce_perf -b 8 -e 64M -f 2
  dynamiccld run --no-explore --quiet -- ./serve.sh`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError(fmt.Errorf("run wants a COMMAND; see `%s --help`", cmd.CommandPath()))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return r.run(cmd, args) },
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().SetInterspersed(false) // what follows the command's name is the command's
	a.settingFlags(cmd, serveSettings...)
	r.flags(a, cmd)
	cmd.Flags().BoolVarP(&r.quiet, "quiet", "q", false, "say nothing of our own, not even what was gained")
	complete(cmd, "learner", models.Names())
	complete(cmd, "reward", tuner.Rewards())
	return cmd
}

func (r *runner) run(cmd *cobra.Command, args []string) error {
	caught, release := launch.Signals()
	defer release()
	// From here on signals are the command's: what is still to do after its end must not be cut short by them.
	ctx := context.WithoutCancel(cmd.Context())
	plain := launch.Untuned(r.environ)
	environ := plain
	patience, patient := launch.Patience(caught)
	changes := r.arrange(ctx, patience, cmd.Flags())
	patient()
	if changes {
		r.id = control.NewRun()
		variables := append(slices.Clone(r.setup.Variables), launch.Variable{Name: launch.RunVariable, Value: control.RunID(r.id)})
		if r.quiet {
			variables = append(variables, launch.Variable{Name: launch.QuietVariable, Value: "1"})
		}
		environ = launch.Environ(r.environ, variables)
	}
	stopWatch := r.watch(ctx)
	end := launch.Command{Args: args, Environ: environ, Plain: plain, TookPlain: r.plain, Streams: r.streams()}.Run(caught)
	stopWatch()
	r.finish(ctx, end.Err == nil)
	if end.Err != nil {
		return &exitError{end.Code, end.Err}
	}
	r.died = end.Signal
	if end.Code != exitOK {
		return &exitError{end.Code, errShown}
	}
	return nil
}

// plain says that the program has none of the variables, and keeps the report from asking what became of them.
func (r *runner) plain() {
	r.setup.Why = launch.PlainNCCL + "with this run's variables the environment is longer than the kernel takes; shorten it, or the command's arguments"
	r.say("%s", r.setup.Why)
}

// arrange gets everything ready and reports whether the program's environment changes. Nothing that fails here keeps the
// program from running.
func (r *runner) arrange(ctx, patience context.Context, flags *pflag.FlagSet) bool {
	loaded, err := config.Load(config.Sources{Host: r.host(), Env: r.environ, Flags: flags})
	if err != nil {
		r.say(launch.PlainNCCL+"%v", err)
		return false
	}
	for _, warning := range loaded.Warnings {
		r.say("%s", warning)
	}
	r.cfg = loaded.Config
	r.setup = r.prepare(r.app, r.cfg)
	for _, note := range r.setup.Notes {
		r.say("%s", note)
	}
	if r.setup.Why != "" {
		r.say("%s", r.setup.Why)
	}
	if len(r.setup.Variables) == 0 {
		return false
	}
	if err := r.need(ctx, patience, flags); err != nil {
		r.say(launch.PlainNCCL+"%v", err)
		return false
	}
	return true
}

// handedOn gives those of the settings that flags say, and the arguments that say so to a daemon: in one word each, for a setting that is
// on or off takes no second one.
func handedOn(flags *pflag.FlagSet, settings []string, cfg config.Config) (given, args []string) {
	for _, key := range settings {
		if flags.Changed(key) {
			given, args = append(given, key), append(args, "--"+key+"="+cfg.Values()[key])
		}
	}
	return given, args
}

// need finds or starts the daemon.
func (r *runner) need(ctx, patience context.Context, flags *pflag.FlagSet) (err error) {
	h := launch.Host{Dir: r.cfg.Dir, Environ: r.environ, Shared: true, Patience: patience, Say: func(text string) { r.say("%s", text) }}
	if h.Executable, err = os.Executable(); err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	r.given, h.Args = handedOn(flags, serveSettings, r.cfg)
	daemon, err := launch.Need(ctx, h)
	if err != nil {
		return err
	}
	if r.cfg.Fixed && !daemon.Started { // another version may not know what it is asked for, and this is a promise
		if err := r.unknown(daemon); err != nil {
			daemon.End(ctx, true)
			return fmt.Errorf("--fixed-numerics: %w", err)
		}
	}
	r.daemon = daemon
	switch {
	case daemon.Late != nil:
		r.say("%v; the program starts, and is tuned once there is a daemon", daemon.Late)
	case daemon.Silent != nil:
		r.say("%v; until it answers the program runs as plain NCCL", daemon.Silent)
	default:
		r.remark()
	}
	return nil
}

// unknown says why nobody knows that a daemon that was found, or is yet to come, is of this version; nil: it is.
func (r *runner) unknown(d *launch.Daemon) error {
	if err := cmp.Or(d.Late, d.Silent); err != nil {
		return err
	}
	if version := build().Version; d.Status.Version != version {
		return fmt.Errorf("daemon %d of %s is version %s and this is %s; restart it", d.Status.PID, d.Status.Dir, d.Status.Version, version)
	}
	return nil
}

// remark says what a daemon that answers does not do as this run would have it.
func (r *runner) remark() {
	st := r.daemon.Status
	if st.StoreState != "ok" && st.StoreState != "" && st.StorePath != config.StoreNone {
		r.say("what is learned is lost with the daemon: %s", st.StoreState)
		r.lost = true
	}
	if r.daemon.Started {
		if st.StoreMoved != "" {
			r.say("the store %s was damaged, and what it knew is not used: it was moved to %s, and a new one begun", st.StorePath, st.StoreMoved)
		}
		return
	}
	if version := build().Version; st.Version != version {
		r.say("daemon %d is version %s and this is %s; restart it after an update", st.PID, st.Version, version)
	}
	if st.Layout != 0 && st.Layout != nccltuner.ABIVersion {
		r.say("daemon %d speaks shared-memory layout %d and this release %d: the program runs as plain NCCL until the daemon is restarted from this release", st.PID, st.Layout, nccltuner.ABIVersion)
	}
	for _, key := range r.given {
		if key == "learner" && st.Learner == r.cfg.Learner {
			continue
		}
		r.say("--%s has no effect: daemon %d serves %s already (learner %s)", key, st.PID, st.Dir, st.Learner)
	}
}

// await gets a program that has started the daemon that was late.
func (r *runner) await(ctx context.Context) {
	if r.daemon.Late == nil {
		return
	}
	switch err := r.daemon.Await(ctx); {
	case ctx.Err() != nil: // the command was faster
	case err != nil:
		r.say("the program goes on as plain NCCL: %v", err)
	case r.daemon.Silent != nil:
		r.say("%v; until it answers the program runs as plain NCCL", r.daemon.Silent)
	default:
		r.say("daemon %d is there: the program is tuned from here on", r.daemon.Status.PID)
		r.remark()
	}
}

// streams are those that this process was given; where a test put something else there is none.
func (r *runner) streams() (files [3]*os.File) {
	for i, s := range []any{r.stdin, r.stdout, r.stderr} {
		files[i], _ = s.(*os.File)
	}
	return files
}

// watch says once when the daemon dies before the command, and first that it has come where it was late.
func (r *runner) watch(ctx context.Context) (stop func()) {
	if r.daemon == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.await(ctx)
		ticker := time.NewTicker(watchEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if !r.daemon.Alive() {
				r.say("daemon %d has ended; the command goes on with the last agreed choices; `dynamiccld serve` starts another", r.daemon.Status.PID)
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}

// finish says what was gained and lets the daemon go.
func (r *runner) finish(ctx context.Context, ran bool) {
	if r.daemon == nil {
		return
	}
	if r.daemon.Late != nil {
		r.say("what was gained is not known: there was no daemon until the end")
		r.daemon.End(ctx, true)
		return
	}
	behind := r.leftBehind()
	own := r.daemon.Started // else others came to it before
	within := reportWithin
	if nccltuner.Stopped(r.daemon.Status.PID) {
		within = launch.AnswerWithin
	}
	asking, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	report, err := r.daemon.Report(asking, r.id)
	switch {
	case errors.Is(err, control.ErrNoDaemon) && r.daemon.Silent == nil:
		r.say("what was gained is not known: the daemon has ended; %s", whereLearned(r.daemon.Status))
	case err != nil:
		r.say("what was gained is not known: %v", err)
	case behind && len(report.Comms) == 0 && report.Elsewhere == 0: // it may be yet to come
	case ran && !r.quiet && (r.setup.Why == "" || len(report.Comms) > 0 && tuned(report)):
		if !own {
			report.Strays = 0
		}
		_ = render.Run(r.stderr, report) // nobody is there to tell
	}
	if r.cfg.Trace != "" {
		if st, err := control.NewClient(r.cfg.Dir).Status(asking); err == nil && st.TraceError != "" {
			r.say("the trace ended early: %s", st.TraceError)
		}
	}
	if !r.daemon.End(ctx, report.Processes > 0 || behind) {
		r.say("daemon %d takes long to end; what was learned may not be on disk yet", r.daemon.Status.PID)
	} else if why := r.daemon.LastWords(); why != "" && !r.lost {
		r.say("%s", why) // a disk that was full in between: who started a program looks at no daemon's log
	}
}

// whereLearned says what became of what a daemon knew: it may have served before this run, with a store of its own.
func whereLearned(st control.Status) string {
	if st.StorePath == config.StoreNone || st.StoreState != "ok" && st.StoreState != "" {
		return "what it had learned is lost with it"
	}
	return "what it had learned is in the store " + st.StorePath
}

func tuned(report control.RunReport) bool {
	return slices.ContainsFunc(report.Comms, func(c control.RunComm) bool { return c.Active })
}

func (r *runner) say(format string, args ...any) {
	if !r.quiet {
		fmt.Fprintf(r.stderr, "dynamiccld: "+format+"\n", args...)
	}
}
