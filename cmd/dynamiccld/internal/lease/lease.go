package lease

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"dynamiccl/nccltuner"
)

// retryEvery is the time between two tries at a lock that somebody else holds.
const retryEvery = 5 * time.Millisecond

// Lock is a held lock. Its file is closed on exec, so a command does not inherit it.
type Lock struct{ file *os.File }

// Join says that a run needs the daemon. It waits for a daemon that is ending, until ctx ends.
func Join(ctx context.Context, dir string) (*Lock, error) {
	return take(ctx, dir, nccltuner.RunsLockName, unix.LOCK_SH)
}

// Starting is held while a daemon is being started, so that of several runs one starts it and the others find it.
func Starting(ctx context.Context, dir string) (*Lock, error) {
	return take(ctx, dir, nccltuner.StartLockName, unix.LOCK_EX)
}

// TryEnd gives a lock when no run needs the daemon, and nil when one does. While it is held no run can join.
func TryEnd(dir string) (*Lock, error) {
	l, err := open(dir, nccltuner.RunsLockName)
	if err != nil {
		return nil, err
	}
	if ok, err := l.try(unix.LOCK_EX); !ok || err != nil {
		l.Release()
		return nil, err
	}
	return l, nil
}

// Last reports whether no other run holds a lease. It may lose this one in the asking: release it next.
func (l *Lock) Last() bool {
	ok, err := l.try(unix.LOCK_EX)
	return ok && err == nil
}

// Release gives the lock back.
func (l *Lock) Release() { _ = l.file.Close() } // closing is what unlocks, and it cannot fail for a lock file

// kept holds what Keep was given: a file that nothing refers to is closed by the garbage collector.
var kept []*Lock

// Keep holds the lock until the process ends.
func (l *Lock) Keep() { kept = append(kept, l) }

func open(dir, name string) (*Lock, error) {
	path := filepath.Join(dir, name)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, NotOpened(err)
	}
	return &Lock{f}, nil
}

// NotOpened says what to do where a file of the directory cannot be opened, of which err has the path, as package os says it.
func NotOpened(err error) error {
	switch {
	case errors.Is(err, unix.EROFS), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w; set %s to a directory that can be written", err, nccltuner.DirVariable)
	case errors.Is(err, unix.ENOSPC):
		return fmt.Errorf("%w; free some space, or set %s to a directory with more", err, nccltuner.DirVariable)
	}
	return fmt.Errorf("%w; remove what is there, or set %s to another directory", err, nccltuner.DirVariable)
}

func (l *Lock) try(how int) (bool, error) {
	for {
		err := unix.Flock(int(l.file.Fd()), how|unix.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, unix.EINTR):
			return false, fmt.Errorf("locking %s: %w; set %s to a directory of a local file system", l.file.Name(), err, nccltuner.DirVariable)
		}
	}
}

func take(ctx context.Context, dir, name string, how int) (*Lock, error) {
	l, err := open(dir, name)
	if err != nil {
		return nil, err
	}
	for {
		ok, err := l.try(how)
		if ok {
			return l, nil
		}
		if err == nil {
			select {
			case <-time.After(retryEvery):
				continue
			case <-ctx.Done():
				err = fmt.Errorf("waiting for %s: %w; see who holds it with: fuser %[1]s", l.file.Name(), ctx.Err())
			}
		}
		l.Release()
		return nil, err
	}
}
