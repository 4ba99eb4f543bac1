package agents

import (
	"math"
	"math/rand/v2"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// A change by half or more is noticed at the third call, whichever actions run.
func TestGuardNoticesJumps(t *testing.T) {
	for _, factor := range []float64{0.5, 1.6, 8} {
		set := fullSet()
		g := NewGuard(defaultLearner{}, set, bucketOf(12), nil, DefaultGuardConfig())
		call := func(i int, ns float64) bool {
			g.Observe(state.Observation{Action: set[i], SignalNs: state.Ns(ns)})
			return g.Jumped()
		}
		for i := range set {
			if call(i, 50e3*(1+0.01*float64(i))) {
				t.Fatalf("factor %g: a jump before the change", factor)
			}
		}
		for k := range jumpCalls {
			i := 7 * k % len(set)
			if jumped, last := call(i, factor*50e3*(1+0.01*float64(i))), k == jumpCalls-1; jumped != last {
				t.Errorf("factor %g: call %d after the change: jumped %t", factor, k, jumped)
			}
		}
	}
}

// Noise of 15% with one delayed call in fifty is no change in 200,000 calls.
func TestNoiseIsNoJump(t *testing.T) {
	calls := 200_000
	if testing.Short() {
		calls = 20_000
	}
	rng := rand.New(rand.NewPCG(1, 1))
	set := fullSet()
	g := NewGuard(defaultLearner{}, set, bucketOf(12), nil, DefaultGuardConfig())
	jumps := 0
	for range calls {
		ns := 50e3 * math.Exp(0.15*rng.NormFloat64())
		if rng.Float64() < 0.02 {
			ns *= math.Exp(0.7 * rng.ExpFloat64())
		}
		g.Observe(state.Observation{Action: actions.Default, SignalNs: state.Ns(ns)})
		if g.Jumped() {
			jumps++
		}
	}
	if jumps > 1 {
		t.Errorf("%d jumps in %d calls", jumps, calls)
	}
}
