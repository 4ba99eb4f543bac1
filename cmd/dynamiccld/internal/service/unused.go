package service

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/lease"
	"dynamiccl/nccltuner"
)

// lookEvery is how often a daemon that `dynamiccld run` started looks whether anybody still needs it.
const lookEvery = 50 * time.Millisecond

// untilUnused calls stop once no `dynamiccld run` holds a lease, no rank process lives, and no process that a run left behind, which may
// come to NCCL later: a script starts a server in the background and ends, and loading a model takes minutes. A run that was killed has lost
// its lease to the kernel, and its ranks, which live on, keep the daemon. A directory that somebody removed keeps nobody. The lock that proves that nobody holds a lease
// is never given back: the process's end does that, once the store is written and the directory is free for the next.
func untilUnused(ctx context.Context, stop func(), dir string, b control.Backend, log *slog.Logger) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	said := false
	var behind leftBehind
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		alone, err := lease.TryEnd(dir)
		if errors.Is(err, fs.ErrNotExist) {
			log.Info("the directory is gone: nobody can reach this daemon any more", "dir", dir)
			stop()
			return
		}
		if err != nil { // for now: the host may have no descriptors left
			if !said {
				log.Error("who uses this daemon cannot be found out; it stays until that is known, or SIGTERM", "err", err)
			}
			said = true
			continue
		}
		if alone == nil {
			continue
		}
		st, err := b.Status(ctx)
		if err == nil && st.Processes == 0 && !behind.keep(dir, log) {
			log.Info("nobody uses this daemon any more")
			alone.Keep()
			stop()
			return
		}
		alone.Release()
	}
}

// leftBehind is a process that was started under a run and keeps the daemon when no run is left.
type leftBehind struct{ nccltuner.Process }

// keep says whether there is one. All processes of the host are looked through once for each that is found, and not again while it lives.
func (l *leftBehind) keep(dir string, log *slog.Logger) bool {
	if alive, err := l.Alive(); alive || err != nil {
		return true
	}
	left := lease.Behind(dir, "")
	if len(left) == 0 {
		return false
	}
	l.Process = left[0]
	log.Info("no run is left: this daemon stays for what one has left behind", "process", l.PID)
	return true
}
