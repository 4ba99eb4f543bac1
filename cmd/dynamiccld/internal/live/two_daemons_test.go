package live

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
)

// Somebody removes the lock and the socket of a daemon that lives, and starts another: the first ends before the two publish into the
// same records for long, its ranks go on with the second, and agree.
func TestLockOfALivingDaemonIsRemoved(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	run := r.ranks("job", []Phase{{quiet, 12000}})
	run.Rate = 3000
	r.begin(run)
	r.until("plans are published", func(s control.Status) bool { return s.Publications > 2 })
	for _, name := range []string{"daemon.lock", "control.sock"} {
		if err := os.Remove(filepath.Join(r.daemon.Dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	second := Daemon{Build: r.build, Dir: r.daemon.Dir, Log: filepath.Join(r.tmp, "second.log"), Args: []string{"--store", "none"}}
	if err := second.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer second.Stop()
	select {
	case err := <-r.daemon.ended:
		r.daemon.cmd = nil
		if err == nil {
			t.Error("the first daemon ended as if nothing had happened")
		}
	case <-time.After(10 * time.Second):
		t.Error("the first daemon goes on")
	}
	if !r.says("the daemon's lock is gone") {
		t.Error("the first daemon does not say why it ended")
	}
	if rep := r.finish(run); rep.Chosen == 0 {
		t.Error("nothing was tuned")
	}
	s, err := control.NewClient(second.Dir).Status(t.Context())
	if err != nil || s.Publications == 0 {
		t.Errorf("the second daemon published nothing: %+v, %v", s, err)
	}
}
