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
		w.observe(ns, 1, 0.01)
		every := w.settle(share)
		if every&(every-1) != 0 {
			t.Fatalf("%d ns: every %d", ns, every)
		}
		if cost := WatchNs / float64(ns) / float64(every); cost > share {
			t.Errorf("%d ns: one in %d costs %.4f", ns, every, cost)
		}
		if cost := WatchNs / float64(ns) / float64(every); every > 1 && cost < share/2 {
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
		w.observe(100_000, 8, 0.01)
	}
	first := w.settle(0.004)
	changes := 0
	for i := range 1000 {
		w.observe(state.Ns(100_000+60_000*(i%2)), 8, 0.01)
		if w.settle(0.004) != first {
			changes++
		}
	}
	if first != 16 || changes > 0 {
		t.Errorf("every %d, changed in %d of 1000 calls", first, changes)
	}
	for range 200 {
		w.observe(10_000, 8, 0.01)
	}
	if got := w.settle(0.004); got != 256 {
		t.Errorf("short calls: every %d", got)
	}
	for range 500 {
		w.observe(2_000_000, 8, 0.01)
	}
	if got := w.settle(0.004); got != 1 {
		t.Errorf("long calls: every %d", got)
	}
	w.observe(1, 8, 0.01)
	for range 10_000 {
		w.observe(1, 8, 0.01)
	}
	if got := w.settle(0.004); got != maxSampleEvery {
		t.Errorf("the shortest calls: every %d", got)
	}
}

// However much there is to try, timing it takes its share of the calls' time and the first burst, and what is tried comes
// in bursts that are worth a plan.
func TestWatchTrialsComeInBursts(t *testing.T) {
	const share, settled = 0.01, 0.004
	for _, ns := range []state.Ns{8_000, 50_000, 200_000} {
		var w watch
		var calls, watched, bursts float64
		every := uint64(1)
		for calls < 3e6 {
			w.observe(ns, every, share)
			watched++
			calls += float64(every)
			before := every
			if every = 1; w.waits {
				every = uint64(w.settle(settled))
			}
			if every == 1 && before > 1 {
				bursts++
			}
		}
		cost := (watched - firstBurst) * WatchNs / (calls * float64(ns))
		if cost > share+0.001 || cost < share/2 {
			t.Errorf("%d ns: watching took %.4f of the time", ns, cost)
		}
		if perBurst := watched / max(1, bursts); perBurst < leastBurst {
			t.Errorf("%d ns: %.0f calls a burst", ns, perBurst)
		}
	}
	var w watch
	for range 10_000 {
		w.observe(1_000_000, 1, share)
		if w.waits {
			t.Fatal("watching a call of 1 ms costs half a percent, and is no reason to wait")
		}
	}
}

// However many calls nobody watched, what they save is a later burst; calls that are heard of out of order save nothing
// twice.
func TestWatchGapsSaveABurst(t *testing.T) {
	const share = 0.01
	var m comm
	spend := func() (calls int) {
		for ; !m.watch.waits; calls++ {
			m.watch.observe(10_000, m.passed(m.newest+1), share)
		}
		return calls
	}
	spend()
	m.watch.observe(10_000, m.passed(m.newest+5_000_000), share)
	if got := spend(); got < burstCalls || got > burstCalls*11/10 {
		t.Errorf("after a gap %d calls were watched, want a burst of %d", got, burstCalls)
	}
	from, made := m.newest, uint64(0)
	for _, later := range []uint64{3, 1, 2, 2, 9, 8} {
		made += m.passed(from + later)
	}
	if made != 9 {
		t.Errorf("%d of 9 calls were counted", made)
	}
}

// Slow calls earn and cost as others do, but say nothing of what watching adds to a call.
func TestWatchOfSlowCalls(t *testing.T) {
	var w watch
	w.slow(100, 0.01)
	if w != (watch{}) {
		t.Errorf("%+v: the first call was slow", w)
	}
	for !w.waits {
		w.observe(10_000, 1, 0.01)
	}
	dearer, n := w.dearer, 0
	for ; w.waits && n < 100_000; n++ {
		w.slow(5, 0.01)
	}
	// 128 calls of 0.53 each are to be saved, of which each slow one brings 0.05 and takes 0.01.
	if w.dearer != dearer || n < 1600 || n > 2000 {
		t.Errorf("%g for %g, %d slow calls", w.dearer, dearer, n)
	}
}
