package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/lease"
	"dynamiccl/cmd/dynamiccld/internal/units"
	"dynamiccl/nccltuner"
)

// AnswerWithin is how long a daemon that lives is given to answer before a program starts without its word.
const AnswerWithin = time.Second

// How long a command may be held up until a daemon is found or started, and a run by one that ends.
const (
	startWithin = 2 * time.Second
	endWithin   = 10 * time.Second
	askEvery    = 10 * time.Millisecond
)

// Host is the directory whose daemon is needed, and how to start one.
type Host struct {
	Dir        string
	Executable string   // dynamiccld
	Args       []string // of serve, beside --dir
	Environ    []string
}

// Daemon is the daemon that serves a command: found or started.
type Daemon struct {
	Status  control.Status // when it was found
	Started bool           // by us
	Silent  error          // not nil: it did not answer in time. Of Status nothing is known but, perhaps, the process id
	client  *control.Client
	lease   *lease.Lock
}

// Need gives the daemon of the directory and starts one when none lives. It stays at least until End. One that does not answer
// in time is no error: ranks do not wait for it, and are tuned once it goes on.
func Need(ctx context.Context, h Host) (*Daemon, error) {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	dir, err := nccltuner.OpenDir(h.Dir) // makes it, and refuses what ranks would refuse
	if err != nil {
		return nil, err
	}
	if err := dir.Close(); err != nil {
		return nil, err
	}
	d := &Daemon{client: control.NewClient(h.Dir)}
	if d.lease, err = lease.Join(ctx, h.Dir); err != nil {
		return nil, err
	}
	err = d.find(ctx, h)
	if errors.Is(err, context.DeadlineExceeded) {
		d.Silent = err
		if silent := new(control.SilentError); errors.As(err, &silent) && !d.Started {
			d.Status.PID = silent.PID
		}
	} else if err != nil {
		d.lease.Release()
		return nil, err
	}
	return d, nil
}

func (d *Daemon) find(ctx context.Context, h Host) (err error) {
	asking, cancel := context.WithTimeout(ctx, AnswerWithin)
	defer cancel()
	if d.Status, err = d.client.Status(asking); !errors.Is(err, control.ErrNoDaemon) {
		return err
	}
	starting, err := lease.Starting(ctx, h.Dir)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("another run is starting the daemon, and needs more than %v: %w", startWithin, err)
	}
	if err != nil {
		return err
	}
	defer starting.Release()
	if d.Status, err = d.client.Status(ctx); !errors.Is(err, control.ErrNoDaemon) {
		return err // another run was faster
	}
	return d.start(ctx, h)
}

func (d *Daemon) start(ctx context.Context, h Host) error {
	// A pipe of that name must not hold the command up until somebody reads it.
	const flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC | os.O_APPEND | unix.O_NOFOLLOW | unix.O_NONBLOCK
	log, err := os.OpenFile(filepath.Join(h.Dir, nccltuner.DaemonLogName), flags, 0o600)
	if err != nil {
		return fmt.Errorf("making the daemon's log: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(h.Executable, append([]string{"serve", "--until-unused", "--dir", h.Dir}, h.Args...)...)
	cmd.Env, cmd.Dir = h.Environ, "/"
	cmd.Stdout, cmd.Stderr = log, log
	// A session of its own: it outlives Ctrl-C and the terminal, for other runs may have joined.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	release := withhold()
	err = cmd.Start()
	release()
	if err != nil {
		return fmt.Errorf("starting the daemon: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its log has the reason; waiting keeps no zombie
		close(ended)
	}()
	for {
		if d.Status, err = d.client.Status(ctx); err == nil {
			d.Started = d.Status.PID == cmd.Process.Pid
			return nil
		}
		select {
		case <-ended:
			if d.Status, err = d.client.Status(ctx); err == nil {
				return nil // it found that another daemon serves the directory
			}
			return fmt.Errorf("the daemon did not start: %s", lastLine(log.Name()))
		case <-ctx.Done(): // it may have much to read, and there is nothing that the command needs it for
			d.Started, d.Status = true, control.Status{PID: cmd.Process.Pid, UntilUnused: true}
			return fmt.Errorf("the daemon that was started takes more than %v: %w; see %s", startWithin, ctx.Err(), log.Name())
		case <-time.After(askEvery):
		}
	}
}

func lastLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if last := strings.TrimPrefix(lines[len(lines)-1], "dynamiccld: "); last != "" {
		return last
	}
	return path + " does not say why, as on a full disk (`df " + units.Word(filepath.Dir(path)) + "`); `dynamiccld serve` says it here"
}

// Alive says whether the daemon's process still runs; where it is not known it does.
func (d *Daemon) Alive() bool {
	return d.Status.PID == 0 || !errors.Is(unix.Kill(d.Status.PID, 0), unix.ESRCH) && !nccltuner.Ended(d.Status.PID)
}

// Report is what the communicators of a run did.
func (d *Daemon) Report(ctx context.Context, run uint64) (report control.RunReport, err error) {
	if report, err = d.client.Run(ctx, run); err == nil && d.Silent != nil {
		d.Status, err = d.client.Status(ctx) // it was not known
	}
	if err == nil {
		d.Silent = nil
	} else if errors.Is(err, context.DeadlineExceeded) {
		d.Silent = err
	}
	return report, err
}

// End says that the daemon is not needed any more. When that ends the daemon it waits, so that what was learned is on disk
// afterwards; not for ranks that outlive the command, though, nor for a daemon that does not even answer. It reports whether
// the daemon has ended or goes on rightly.
func (d *Daemon) End(ctx context.Context, ranksLive bool) bool {
	last := d.lease.Last()
	d.lease.Release()
	if !last || !d.Status.UntilUnused || ranksLive || d.Silent != nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, endWithin)
	defer cancel()
	for d.Alive() {
		select {
		case <-time.After(askEvery):
		case <-ctx.Done():
			return false
		}
	}
	return true
}
