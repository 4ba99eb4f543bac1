package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/storefile"
	"dynamiccl/cmd/dynamiccld/internal/units"
	"dynamiccl/nccltuner"
	"dynamiccl/tuner/store"
)

// checkDaemon asks the daemon; nil: none answers.
func checkDaemon(ctx context.Context, r *Report, h Host) *control.Status {
	const check = "daemon"
	st, err := h.Client.Status(ctx)
	refused, silent := new(control.Error), new(control.SilentError)
	switch {
	case err == nil:
		text := fmt.Sprintf("pid %d answers, version %s, %s", st.PID, st.Version, units.Count(len(st.Comms), "communicator"))
		if st.Layout != 0 && st.Layout != h.ABI {
			r.fail(check, fmt.Sprintf("%s, and speaks shared-memory layout %d: programs with the plugin of this release, which has %d, run plain NCCL", text, st.Layout, h.ABI),
				"restart the daemon from this release")
		} else if who, held := control.Holder(h.Dir); held && who.Elsewhere {
			r.warn(check, text+", and is in another PID namespace than this command, as of another container: programs beside this command run plain NCCL",
				"start them with one PID namespace (--pid=host), or a daemon here with a DYNAMICCL_DIR of its own")
		} else if st.Version != h.Version {
			r.warn(check, fmt.Sprintf("%s, and this command is version %s", text, h.Version), "restart the daemon after an update")
		} else {
			r.ok(check, text)
		}
		if st.Dropped > 0 {
			r.warn("samples", fmt.Sprintf("%d of %d samples were dropped by full rings", st.Dropped, st.Dropped+st.Samples), "give the daemon more processor time, or a smaller --tick")
		}
		return &st
	case errors.As(err, &refused) && refused.Status == http.StatusForbidden:
		r.fail(check, "the daemon answers: "+refused.Message, "run the command as the daemon's user or as root")
	case errors.As(err, &refused):
		r.fail(check, "the daemon answers: "+refused.Message, "look at its log, or restart it")
	case errors.As(err, &silent):
		r.fail(check, silent.Text(), silent.Remedy())
	case !holds(h.Dir):
		text := "no daemon runs: ranks use plain NCCL, or the last plan, until one does"
		if _, err := os.Lstat(filepath.Join(h.Dir, control.SocketName)); err == nil {
			text += "; the socket of a dead one is left"
		}
		r.fail(check, text, "start it with `dynamiccld serve`")
	case errors.Is(err, control.ErrNoDaemon):
		r.fail(check, "a daemon holds "+filepath.Join(h.Dir, nccltuner.DaemonLockName)+" but does not answer on "+control.SocketName, "look at its log; it may be starting or ending, else restart it")
	default:
		r.fail(check, err.Error(), "look at its log, or restart it")
	}
	return nil
}

// checkStore looks at the store file, or takes the word of the daemon that uses it.
func checkStore(r *Report, h Host, daemon *control.Status) {
	const check = "store"
	if daemon != nil {
		if daemon.StoreState == "ok" {
			r.ok(check, daemon.StorePath+" is in use by the daemon")
		} else {
			r.warn(check, fmt.Sprintf("%s: %s", daemon.StorePath, daemon.StoreState), "correct it; until then choices are kept in memory only")
		}
		return
	}
	if h.StorePath == "none" {
		r.warn(check, "store is none: what is learned ends with the daemon", "name a file with --store or DYNAMICCL_STORE")
		return
	}
	buckets, bad, err := storefile.Read(h.StorePath, time.Now())
	known := new(store.Error)
	switch {
	case err == nil && len(bad) > 0:
		r.warn(check, fmt.Sprintf("%s holds %d choices and %d records that cannot be read, the first: %s", h.StorePath, len(buckets), len(bad), bad[0]),
			"none needed: they are learned again")
	case err == nil && !mayWrite(h.StorePath):
		r.warn(check, fmt.Sprintf("%s holds %s and cannot be written: what is learned ends with the daemon", h.StorePath, units.Count(len(buckets), "choice")),
			"let the daemon's user write it, or name another file with --store or DYNAMICCL_STORE")
	case err == nil:
		r.ok(check, h.StorePath+" holds "+units.Count(len(buckets), "choice"))
	case errors.Is(err, store.ErrMissing) && !mayMake(h.StorePath):
		r.warn(check, h.StorePath+" does not exist, and you may not make it: what a daemon of yours learns ends with it", "name another file with --store or DYNAMICCL_STORE")
	case errors.Is(err, store.ErrMissing):
		r.ok(check, h.StorePath+" does not exist yet: the daemon makes it")
	case errors.As(err, &known):
		r.fail(check, fmt.Sprintf("%s: %v", known.Path, known.Kind), known.Remedy())
	default:
		r.fail(check, err.Error(), "name another file with --store or DYNAMICCL_STORE")
	}
}

func holds(dir string) bool {
	_, held := control.Holder(dir)
	return held
}
