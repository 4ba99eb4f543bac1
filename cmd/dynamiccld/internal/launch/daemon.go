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
	"dynamiccl/nccltuner"
)

// How long a command may be held up by a daemon that starts, and a run by one that ends.
const (
	startWithin = 10 * time.Second
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
	client  *control.Client
	lease   *lease.Lock
}

// Need gives the daemon of the directory and starts one when none lives. It stays at least until End.
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
	if err := d.find(ctx, h); err != nil {
		d.lease.Release()
		return nil, err
	}
	return d, nil
}

func (d *Daemon) find(ctx context.Context, h Host) (err error) {
	if d.Status, err = d.client.Status(ctx); !errors.Is(err, control.ErrNoDaemon) {
		return err
	}
	starting, err := lease.Starting(ctx, h.Dir)
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
	if err := cmd.Start(); err != nil {
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
		case <-ctx.Done():
			_ = cmd.Process.Kill()
			<-ended
			return fmt.Errorf("the daemon did not answer within %v: %w; see %s", startWithin, err, log.Name())
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
	return strings.TrimPrefix(lines[len(lines)-1], "dynamiccld: ")
}

// Alive says whether the daemon's process still runs.
func (d *Daemon) Alive() bool { return !errors.Is(unix.Kill(d.Status.PID, 0), unix.ESRCH) }

// Report is what the communicators of a run did.
func (d *Daemon) Report(ctx context.Context, run uint64) (control.RunReport, error) {
	return d.client.Run(ctx, run)
}

// End says that the daemon is not needed any more. When that ends the daemon it waits, so that what was learned is on disk
// afterwards; not for ranks that outlive the command, though. It reports whether the daemon has ended or goes on rightly.
func (d *Daemon) End(ctx context.Context, ranksLive bool) bool {
	last := d.lease.Last()
	d.lease.Release()
	if !last || !d.Status.UntilUnused || ranksLive {
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
