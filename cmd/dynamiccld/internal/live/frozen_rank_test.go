package live

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
)

// frozenFor is how long a rank stands still; with DYN_LONG=1 as long as a debugger or a swapping host may take.
func frozenFor() time.Duration {
	if os.Getenv("DYN_LONG") == "1" {
		return 30 * time.Second
	}
	return 2 * time.Second
}

// One rank of a communicator is stopped in the middle of trials: the others get as far as the program lets them and wait, status names
// it and the remedy. It goes on, and all agree as before, or it is killed, and the next job of the name is tuned.
func TestFrozenRank(t *testing.T) {
	for name, killed := range map[string]bool{"goes on": false, "killed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.start()
			run := r.ranks("frozen", []Phase{{quiet, 15_000}}, "--window", "512")
			run.Rate = 3000
			r.begin(run)
			s := r.until("trials", func(s control.Status) bool {
				return len(s.Comms) == 1 && s.Comms[0].PlanVersion > 2 && s.Comms[0].Trouble == "" && r.exploring()
			})
			rank := s.Comms[0].Processes[2]
			signal := func(sig syscall.Signal) {
				t.Helper()
				if err := syscall.Kill(rank, sig); err != nil {
					t.Fatal(err)
				}
			}
			signal(syscall.SIGSTOP)
			time.Sleep(frozenFor())
			s = r.status()
			if want := fmt.Sprintf("process %d, is stopped, and the others wait for it: let it go on with `kill -CONT %[1]d`", rank); !strings.Contains(s.Comms[0].Trouble, want) {
				t.Errorf("status says %q of a rank that is stopped, want %q", s.Comms[0].Trouble, want)
			}
			if out, _ := r.ask("status"); !strings.Contains(out, "tuned; rank 2, process") {
				t.Errorf("status:\n%s", out)
			}
			calls := s.Comms[0].Calls
			time.Sleep(200 * time.Millisecond)
			if now := r.status().Comms[0].Calls; now != calls {
				t.Errorf("the others have gone on from call %d to %d", calls, now)
			}
			if killed {
				signal(syscall.SIGKILL)
				var exit *exec.ExitError
				if err := run.Wait(); !errors.As(err, &exit) {
					t.Fatalf("a run whose rank was killed ended with %v", err)
				}
				// What the killed rank had not written is lost; the others' logs are whole.
				if err := os.Remove(strings.Replace(run.LogPattern(), "%r", "2", 1)); err != nil {
					t.Fatal(err)
				}
				r.compare(run)
				again := r.ranks("frozen", []Phase{{quiet, 6000}})
				again.Rate = 3000
				r.begin(again)
				if rep := r.finish(again); rep.Compared != 6000 || rep.Chosen == 0 {
					t.Errorf("the next job: %d of 6000 calls, %d chosen", rep.Compared, rep.Chosen)
				}
				r.noFilesLeft()
				return
			}
			signal(syscall.SIGCONT)
			s = r.until("new plans", func(now control.Status) bool {
				return len(now.Comms) == 1 && now.Comms[0].Trouble == "" && now.Publications > s.Publications
			})
			if rep := r.finish(run); rep.Compared != 15_000 || rep.Chosen == 0 {
				t.Errorf("%d of 15000 calls, %d chosen", rep.Compared, rep.Chosen)
			}
			if s := r.status(); s.Core.Disagreed != 0 || s.Core.Overruled != 0 {
				t.Errorf("disagreed %d, overruled %d; want 0", s.Core.Disagreed, s.Core.Overruled)
			}
			r.noFilesLeft()
		})
	}
}

// exploring says that some size has trials in the plan.
func (r *rig) exploring() bool {
	all, err := control.NewClient(r.daemon.Dir).Buckets(r.Context())
	for _, b := range all {
		if b.Exploring {
			return err == nil
		}
	}
	return false
}
