package launch

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/lease"
	"dynamiccl/nccltuner"
)

// AnswerWithin is how long a daemon that lives is given to answer before a program starts without its word.
const AnswerWithin = time.Second

// How long a command may be held up until a daemon is found or started, and a run by one that ends, be it the one before or its own.
const (
	startWithin = 2 * time.Second
	endWithin   = 10 * time.Second
	sayAfter    = time.Second
	askEvery    = 10 * time.Millisecond
)

// Host is the directory whose daemon is needed, and how to start one.
type Host struct {
	Dir        string
	Executable string   // dynamiccld
	Args       []string // of serve, beside --dir
	Environ    []string
	Shared     bool              // other runs may join the daemon: it is not confined to what this process is (apart.go)
	Say        func(text string) // for people, while they wait; nil: nobody reads it
	Patience   context.Context   // once it ends nobody waits for the daemon before any more, as after Ctrl-C; nil: as long as Need waits
}

// Daemon is the daemon that serves a command: found or started.
type Daemon struct {
	Status  control.Status // when it was found
	Started bool           // by us
	Silent  error          // not nil: it did not answer in time. Of Status nothing is known but, perhaps, the process id
	Late    error          // not nil: there is none yet, for another process has the directory still; Await goes on
	host    Host
	client  *control.Client
	lease   *lease.Lock // nil: not yet, while the daemon before ends
}

// Need gives the daemon of the directory and starts one when none lives. It stays at least until End. One that does not answer
// in time is no error, nor is one before it that takes long to end: ranks wait for neither, and are tuned once there is an answer.
func Need(ctx context.Context, h Host) (*Daemon, error) {
	if err := control.CheckDir(h.Dir); err != nil {
		return nil, err
	}
	dir, err := nccltuner.OpenDir(h.Dir) // makes it, and refuses what ranks would refuse
	if err != nil {
		return nil, err
	}
	if err := dir.Close(); err != nil {
		return nil, err
	}
	d := &Daemon{host: h, client: control.NewClient(h.Dir)}
	err = d.join(ctx, sayAfter)
	if errors.As(err, new(lateError)) {
		if h.Say != nil && (h.Patience == nil || h.Patience.Err() == nil) {
			h.Say(fmt.Sprintf("%v; waiting for it, for %v at most", err, endWithin))
		}
		err = d.join(ctx, endWithin-sayAfter)
	}
	if errors.As(err, new(lateError)) {
		d.Late = err
		return d, nil
	}
	if err == nil {
		err = d.get(ctx)
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Await goes on where Need has not come to a daemon, until there is one or ctx ends.
func (d *Daemon) Await(ctx context.Context) error {
	if d.lease == nil {
		if err := d.join(ctx, 0); err != nil {
			return err
		}
	}
	for d.Late != nil {
		if err := d.get(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// join says that a run needs the daemon. One that is ending lets nobody join, for so long as it takes to write what it has learned; 0: as
// long as that may take.
func (d *Daemon) join(ctx context.Context, within time.Duration) (err error) {
	if within > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, within)
		defer cancel()
		if d.host.Patience != nil {
			defer context.AfterFunc(d.host.Patience, cancel)()
		}
	}
	if d.lease, err = lease.Join(ctx, d.host.Dir); err != nil && ctx.Err() != nil {
		return before(d.host.Dir, err)
	}
	return err
}

// get finds the daemon, or starts one. Who gets an error has no lease.
func (d *Daemon) get(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	late := d.Late
	d.Late = nil
	err := d.find(ctx)
	if who, held := control.Holder(d.host.Dir); held && who.Elsewhere {
		d.Late, err = nil, fmt.Errorf("the daemon of %s is in another PID namespace, as of another container, where it cannot know which ranks live; "+
			"start this with the same one (--pid=host), or set %s to a directory of its own", d.host.Dir, nccltuner.DirVariable)
	}
	if err == nil || d.Late != nil {
		return nil
	}
	if errors.Is(err, context.DeadlineExceeded) {
		d.Silent = err
		if silent := new(control.SilentError); errors.As(err, &silent) && !d.Started {
			d.Status.PID = silent.PID
		}
		return nil
	}
	if errors.Is(err, context.Canceled) && !d.Started {
		d.Late = late // the command has ended meanwhile, and there has been none until then
	}
	d.lease.Release()
	d.lease = nil
	return err
}

func (d *Daemon) find(ctx context.Context) (err error) {
	asking, cancel := context.WithTimeout(ctx, AnswerWithin)
	defer cancel()
	if d.Status, err = d.client.Status(asking); !errors.Is(err, control.ErrNoDaemon) {
		return err
	}
	starting, err := lease.Starting(ctx, d.host.Dir)
	if errors.Is(err, context.DeadlineExceeded) {
		d.Late = fmt.Errorf("another run is starting the daemon, and needs more than %v: %w", startWithin, err)
		return d.Late
	}
	if err != nil {
		return err
	}
	defer starting.Release()
	for {
		if d.Status, err = d.client.Status(ctx); !errors.Is(err, control.ErrNoDaemon) {
			return err // another run was faster
		}
		if _, held := control.Holder(d.host.Dir); !held {
			return d.start(ctx)
		}
		// It is starting, or ending though runs may join, as after SIGTERM: another one beside it would not start.
		select {
		case <-ctx.Done():
			d.Late = err
			return err
		case <-time.After(askEvery):
		}
	}
}

// lateError says that the daemon before has not ended yet.
type lateError string

func (e lateError) Error() string { return string(e) }

// before says who keeps a run from joining, where that is known.
func before(dir string, err error) error {
	who, held := control.Holder(dir)
	pid := who.PID
	switch {
	case !held || pid == 0:
		return lateError(err.Error())
	case nccltuner.Stopped(pid):
		return lateError(fmt.Sprintf("daemon %d of %s, the one before, is stopped and does not end; let it go on with `kill -CONT %[1]d`", pid, dir))
	}
	return lateError(fmt.Sprintf("daemon %d of %s, the one before, takes long to end; see %s, or end it with `kill -9 %[1]d`", pid, dir,
		filepath.Join(dir, nccltuner.DaemonLogName)))
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
	if d.lease == nil {
		return true
	}
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

// LastWords say what has gone wrong in the end with a daemon that a run started and that has ended; "": nothing, or nobody knows.
func (d *Daemon) LastWords() string {
	if !d.Status.UntilUnused || d.Alive() {
		return ""
	}
	line, err := lastLine(filepath.Join(d.host.Dir, nccltuner.DaemonLogName))
	words, ours := strings.CutPrefix(line, logPrefix)
	if err != nil || !ours { // what it logs begins otherwise
		return ""
	}
	return words
}
