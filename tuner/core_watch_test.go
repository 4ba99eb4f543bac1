package tuner_test

import (
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// What watching costs for the sake of trials stays a share of the time for programs that run ahead of their GPU, too,
// however often the daemon looks.
func TestWatchingFromAfarKeepsItsShare(t *testing.T) {
	const share, burst, WatchNs, calls = 0.01, 8192, 5300, 300_000
	for _, ns := range []state.Ns{5_000, 20_700} {
		for _, behind := range []int{0, 500, 2000} {
			for i, tick := range []int{20, 300, 20, 300} {
				d := newDistant(t, tuner.Config{Guard: agents.DefaultGuardConfig().Budgeted(share)}, ns, i >= 2)
				watched := 0
				for d.seq < calls {
					for range tick {
						d.call()
						if d.inFlight[len(d.inFlight)-1].sampled {
							watched++
						}
					}
					d.hear(len(d.inFlight)-behind, func() bool { return false })
					d.tick()
				}
				ahead := 2*behind + tick + epochCalls // what the last burst watched before it could be ended, and what is not heard of yet
				if cost := float64(watched-burst-ahead) * WatchNs / float64(calls*ns); cost > share {
					t.Errorf("calls of %d ns, heard of %d later, a tick in %d: watching took %.4f of the time", ns, behind, tick, cost)
				}
			}
		}
	}
}

// A program of short calls has made a thousand of them when the daemon hears of the first. Where ranks time trials one by
// one, what is watched is mostly trials.
func TestWatchedCallsAreTrials(t *testing.T) {
	const tick, calls = 1000, 400_000
	for _, behind := range []int{0, 500} {
		d := newDistant(t, tuner.Config{}, 10_000, true)
		watched, tried := 0, 0
		for d.seq < calls {
			for range tick {
				d.call()
				switch s := d.inFlight[len(d.inFlight)-1]; {
				case s.sampled && s.trial != 0 && s.Action != actions.Default:
					tried++
					fallthrough
				case s.sampled:
					watched++
				}
			}
			d.hear(len(d.inFlight)-behind, func() bool { return false })
			d.tick()
		}
		t.Logf("heard of %d later: %d trials in %d watched calls, %d entries", behind, tried, watched, d.entries)
		if tried < 1000 || tried < watched/4 {
			t.Errorf("heard of %d later: %d trials in %d watched calls", behind, tried, watched)
		}
	}
}
