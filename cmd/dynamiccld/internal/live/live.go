package live

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
)

// Build says where the programs and libraries of one build are. Paths are absolute.
type Build struct {
	Daemon string // dynamiccld
	Rank   string // dynamiccl-rank
	Lib    string // folder of the plugin
	Tables string // folder of recorded tables
}

// BuildIn gives the build that `make` leaves in the checkout root, and checks that it is there.
func BuildIn(root string) (Build, error) {
	b := Build{Daemon: filepath.Join(root, "bin", "dynamiccld"), Rank: filepath.Join(root, "bin", "dynamiccl-rank"),
		Lib: filepath.Join(root, "lib"), Tables: filepath.Join(root, "tuner", "tunersim", "testdata", "measurements")}
	for _, path := range []string{b.Daemon, b.Rank, b.Tuner(), b.Profiler(), b.Tables} {
		if _, err := os.Stat(path); err != nil {
			return b, fmt.Errorf("%w; run `make` in the checkout first", err)
		}
	}
	return b, nil
}

// Tuner is the plugin under its tuner name.
func (b Build) Tuner() string { return filepath.Join(b.Lib, "libnccl-tuner-dynamiccl.so") }

// Profiler is the plugin under its profiler name.
func (b Build) Profiler() string { return filepath.Join(b.Lib, "libnccl-profiler-dynamiccl.so") }

// Table is a recorded table's file.
func (b Build) Table(name string) string { return filepath.Join(b.Tables, name+".csv") }

// Daemon is a daemon process of a directory.
type Daemon struct {
	Build Build
	Dir   string
	Log   string   // file that gets what it says
	Args  []string // of serve, beside --dir
	cmd   *exec.Cmd
	ended chan error // gets what Wait gave
}

// answerWithin bounds the wait for a daemon that was started.
const answerWithin = 10 * time.Second

// Start starts the daemon and waits until it answers.
func (d *Daemon) Start(ctx context.Context) error {
	logFile, err := os.OpenFile(d.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer logFile.Close()
	settings := d.Log + ".yaml" // nobody's configuration file but this empty one
	if err := os.WriteFile(settings, nil, 0o600); err != nil {
		return err
	}
	d.cmd = exec.Command(d.Build.Daemon, append([]string{"serve", "--dir", d.Dir, "--config", settings}, d.Args...)...)
	d.cmd.Env = cleanEnvironment()
	d.cmd.Stdout, d.cmd.Stderr = logFile, logFile
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // never outlives a crashed parent
	if err := d.cmd.Start(); err != nil {
		return fmt.Errorf("starting the daemon: %w", err)
	}
	d.ended = make(chan error, 1)
	go func() { d.ended <- d.cmd.Wait() }()
	client := control.NewClient(d.Dir)
	for deadline := time.Now().Add(answerWithin); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if _, err = client.Status(ctx); err == nil {
			return nil
		}
		select {
		case err := <-d.ended:
			d.cmd = nil
			return errors.Join(fmt.Errorf("the daemon ended at once: %w", err), LastWords(d.Log))
		case <-ctx.Done():
			return errors.Join(ctx.Err(), d.Kill())
		default:
		}
	}
	_ = d.Kill()
	return errors.Join(fmt.Errorf("the daemon does not answer: %w", err), LastWords(d.Log))
}

// PID is the daemon's process id.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// Signal sends the daemon a signal.
func (d *Daemon) Signal(s os.Signal) error { return d.cmd.Process.Signal(s) }

// Kill is what a crash looks like to the ranks: SIGKILL.
func (d *Daemon) Kill() error {
	if err := d.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("killing the daemon: %w", err)
	}
	<-d.ended // "signal: killed" is what was asked for
	d.cmd = nil
	return nil
}

// Stop lets the daemon drain and end. Stopping one that was killed or stopped does nothing.
func (d *Daemon) Stop() error {
	if d.cmd == nil {
		return nil
	}
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself; Wait tells
	err := <-d.ended
	d.cmd = nil
	if err != nil {
		return errors.Join(fmt.Errorf("the daemon ended badly: %w", err), LastWords(d.Log))
	}
	return nil
}

// cleanEnvironment is ours without what would change a daemon or a rank: a run must not depend on the user's settings.
func cleanEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, "NCCL_") || strings.HasPrefix(e, "DYNAMICCL_")
	})
}

// Phase is some calls with the costs of one recorded table.
type Phase struct {
	Table string
	Calls int // of each rank
}

// Ranks is one run of the rank harness.
type Ranks struct {
	Build  Build
	Dir    string // DYNAMICCL_DIR
	Name   string // job, part of the communicator ids and of file names
	Folder string // for logs and output
	Phases []Phase
	Rate   int // calls a second of each rank; 0: as fast as possible
	Seed   uint64
	Args   []string // more of the harness
	Env    []string // over the usual environment
	// Prefix, when set, is a program and arguments through which the harness is started.
	Prefix []string
	cmd    *exec.Cmd
}

// Start starts all rank processes.
func (r *Ranks) Start() error {
	args := []string{"--job", r.Name, "--seed", strconv.FormatUint(r.Seed, 10), "--rate", strconv.Itoa(r.Rate), "--log", r.LogPattern()}
	for _, p := range r.Phases {
		args = append(args, "--phase", fmt.Sprintf("%s:%d", r.Build.Table(p.Table), p.Calls))
	}
	out, err := os.Create(r.Output())
	if err != nil {
		return err
	}
	defer out.Close()
	argv := append(append(append([]string{}, r.Prefix...), r.Build.Rank), append(args, r.Args...)...)
	r.cmd = exec.Command(argv[0], argv[1:]...)
	r.cmd.Stdout, r.cmd.Stderr = out, out
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	r.cmd.Env = append(append(cleanEnvironment(), "DYNAMICCL_DIR="+r.Dir, "NCCL_TUNER_PLUGIN="+r.Build.Tuner(),
		"NCCL_PROFILER_PLUGIN="+r.Build.Profiler(), "NCCL_DEBUG=WARN"), r.Env...)
	if err := r.cmd.Start(); err != nil {
		return fmt.Errorf("starting the ranks: %w", err)
	}
	return nil
}

// Wait waits for all rank processes.
func (r *Ranks) Wait() error {
	if err := r.cmd.Wait(); err != nil {
		return errors.Join(fmt.Errorf("ranks of %s: %w", r.Name, err), LastWords(r.Output()))
	}
	return nil
}

// Kill ends all rank processes at once.
func (r *Ranks) Kill() { _ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL) } // they may be gone already

// LogPattern names the ranks' logs; %r is the rank.
func (r *Ranks) LogPattern() string { return filepath.Join(r.Folder, r.Name+"-%r.log") }

// Output is the file that gets what the ranks print.
func (r *Ranks) Output() string { return filepath.Join(r.Folder, r.Name+".out") }

// lastWordsBytes is how much of a log an error carries.
const lastWordsBytes = 2000

// LastWords gives the end of a process's output as an error; nil when it said nothing.
func LastWords(file string) error {
	text, err := os.ReadFile(file)
	if err != nil || len(text) == 0 {
		return nil
	}
	return fmt.Errorf("its last words:\n%s", text[max(0, len(text)-lastWordsBytes):])
}
