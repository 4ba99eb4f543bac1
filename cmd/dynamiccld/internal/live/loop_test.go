package live

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
)

// The whole loop: learns, follows the fabric, never costs more than 1.02 of NCCL's default in any phase.
func TestClosedLoopAdapts(t *testing.T) {
	for _, learner := range []string{"coordinate-descent", "ucb"} {
		t.Run(learner, func(t *testing.T) {
			r := newRig(t, "--learner", learner)
			r.start()
			run := r.ranks("adapt", []Phase{{quiet, 8000}, {netLoad, 8000}, {quiet, 8000}}, "--nccl", "2.28.9")
			run.Rate = 3000
			r.begin(run)
			rep := r.finish(run)
			for i, p := range rep.Phases {
				calls, ok := p.MedianAdapted()
				t.Logf("phase %d: %.3f of the default, %.3f of the best, adapted after %d calls (median bucket)", i, p.OverDefault(), p.OverBest(), calls)
				if p.OverDefault() > 1.02 {
					t.Errorf("phase %d took %.3f of NCCL's default, want at most 1.02", i, p.OverDefault())
				}
				if i > 0 && (!ok || calls > 64) {
					t.Errorf("phase %d: the median bucket adapted after %d calls (all: %v), want at most 64", i, calls, ok)
				}
			}
			s := r.status()
			if s.Core.Groups == 0 || s.Core.Plans == 0 {
				t.Errorf("the status tells nothing of the core: %+v", s.Core)
			}
			if s.Core.Disagreed != 0 || s.Core.Overruled != 0 || s.Dropped != 0 {
				t.Errorf("disagreed %d, overruled %d, dropped %d; want 0", s.Core.Disagreed, s.Core.Overruled, s.Dropped)
			}
			r.noFilesLeft()
		})
	}
}

// A daemon that is killed again and again never splits the ranks, and each one takes over where the last one died.
func TestDaemonDiesAgainAndAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, "--tick", "1ms")
	r.start()
	run := r.ranks("kills", []Phase{{nvlink, 60000}}, "--stall", "0.0002,2000", "--window", "512", "--group", "3,0.1")
	run.Rate = 8000
	r.begin(run)
	ended := make(chan error, 1)
	go func() { ended <- run.Wait() }()
	kills := 0
	for running := true; running; {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatal(err)
			}
			running = false
		case <-time.After(500 * time.Millisecond):
			if err := r.daemon.Kill(); err != nil {
				t.Fatal(err)
			}
			kills++
			r.start()
		}
	}
	rep := r.compare(run)
	t.Logf("%d calls on %d ranks, %d of them chosen, daemon killed %d times", rep.Compared, rep.Ranks, rep.Chosen, kills)
	if kills < 3 || rep.Chosen == 0 || rep.Compared != 60000 {
		t.Errorf("killed %d times, %d of %d calls chosen: want at least 3 kills, some choices, all calls compared", kills, rep.Chosen, rep.Compared)
	}
	r.noFilesLeft()
}

func TestFrozenDaemonAndFrozenRank(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	run := r.ranks("frozen", []Phase{{quiet, 12000}})
	run.Rate = 3000
	r.begin(run)
	s := r.until("4 ranks", func(s control.Status) bool { return len(s.Comms) == 1 && s.Comms[0].Active })
	time.Sleep(500 * time.Millisecond)
	rank := s.Comms[0].Processes[1]
	for _, pid := range []int{rank, r.daemon.PID()} {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		time.Sleep(700 * time.Millisecond)
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	rep := r.finish(run)
	if rep.Compared != 12000 || rep.Chosen == 0 {
		t.Errorf("%d calls compared, %d chosen; want 12000 and some", rep.Compared, rep.Chosen)
	}
}

// Ranks that find no daemon run NCCL's defaults and are tuned once one comes.
func TestDaemonComesLater(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	run := r.ranks("later", []Phase{{quiet, 9000}})
	run.Rate = 3000
	r.begin(run)
	time.Sleep(time.Second)
	r.start()
	rep := r.finish(run)
	if rep.Chosen == 0 {
		t.Error("nothing was chosen after the daemon came")
	}
}

// A rank that dies leaves files that the next run with the same communicator id recognises as stale.
func TestRankDiesAndItsJobComesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	run := r.ranks("phoenix", []Phase{{quiet, 6000}}, "--leave", "2:1500")
	run.Rate = 3000
	r.begin(run)
	var exit *exec.ExitError
	if err := run.Wait(); !errors.As(err, &exit) {
		t.Fatalf("a run whose rank 2 dies ended with %v, want an exit code", err)
	}
	r.compare(run)
	again := r.ranks("phoenix", []Phase{{quiet, 6000}})
	again.Rate = 3000
	r.begin(again)
	if rep := r.finish(again); rep.Chosen == 0 {
		t.Error("the second generation of the communicator was not tuned")
	}
	r.noFilesLeft()
}

// The same without a daemon to clean up between the runs.
func TestStaleRecordIsReplacedByRanks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	run := r.ranks("stale", []Phase{{quiet, 100_000}})
	run.Rate = 1000
	r.begin(run)
	time.Sleep(500 * time.Millisecond)
	run.Kill()
	if err := run.Wait(); err == nil {
		t.Fatal("the run survived SIGKILL")
	}
	if files, _ := filepath.Glob(filepath.Join(r.daemon.Dir, "comm-*")); len(files) == 0 {
		t.Fatal("the dead run left no record: there is nothing to test")
	}
	r.start()
	again := r.ranks("stale", []Phase{{quiet, 6000}})
	again.Rate = 3000
	r.begin(again)
	if rep := r.finish(again); rep.Chosen == 0 {
		t.Error("the second generation of the communicator was not tuned")
	}
}

func TestTwoDaemonsInOneDirectory(t *testing.T) {
	r := newRig(t)
	r.start()
	out, err := exec.Command(r.build.Daemon, "serve", "--dir", r.daemon.Dir, "--store", "none").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "process") || !strings.Contains(string(out), "stop it") {
		t.Errorf("a second daemon said %q and ended with %v; want a refusal that names the first", out, err)
	}
	if s := r.status(); s.PID != r.daemon.PID() {
		t.Errorf("process %d answers, want %d", s.PID, r.daemon.PID())
	}
}
