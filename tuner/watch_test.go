package tuner

import (
	"testing"

	"dynamiccl/state"
)

// Sampling one epoch in so many costs at most its share of the calls' time, whatever a call takes, and no more than
// twice as rarely as that needs.
func TestWatchKeepsItsShare(t *testing.T) {
	const share = 0.004
	for _, ns := range []state.Ns{5_000, 11_700, 40_000, 99_000, 310_000, 1_200_000} {
		var w watch
		w.observe(ns)
		every := w.settle(share)
		if every&(every-1) != 0 {
			t.Fatalf("%d ns: every %d", ns, every)
		}
		if cost := watchNs / float64(ns) / float64(every); cost > share {
			t.Errorf("%d ns: one in %d costs %.4f", ns, every, cost)
		}
		if cost := watchNs / float64(ns) / float64(every); every > 1 && cost < share/2 {
			t.Errorf("%d ns: one in %d is rarer than it must be: %.4f", ns, every, cost)
		}
	}
}

// Calls that get shorter are followed at once, longer ones late: costs that move to and fro change nothing.
func TestWatchDoesNotFlap(t *testing.T) {
	var w watch
	if w.settle(0.004) != 1 {
		t.Error("the first call is waited for")
	}
	for range 500 {
		w.observe(100_000)
	}
	first := w.settle(0.004)
	changes := 0
	for i := range 1000 {
		w.observe(state.Ns(100_000 + 60_000*(i%2)))
		if w.settle(0.004) != first {
			changes++
		}
	}
	if first != 8 || changes > 0 {
		t.Errorf("every %d, changed in %d of 1000 calls", first, changes)
	}
	for range 200 {
		w.observe(10_000)
	}
	if got := w.settle(0.004); got != 128 {
		t.Errorf("short calls: every %d", got)
	}
	for range 500 {
		w.observe(2_000_000)
	}
	if got := w.settle(0.004); got != 1 {
		t.Errorf("long calls: every %d", got)
	}
	w.observe(1)
	for range 10_000 {
		w.observe(1)
	}
	if got := w.settle(0.004); got != maxSampleEvery {
		t.Errorf("the shortest calls: every %d", got)
	}
}
