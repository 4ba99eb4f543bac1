package agents

import (
	"math/rand/v2"
	"testing"

	"dynamiccl/actions"
)

// The first call of the best action is delayed to twice the default's cost. Whoever learns, it must be found all the same,
// and looking for it must cost next to nothing.
func TestOneDelayedCallRulesNothingOut(t *testing.T) {
	set := []actions.Action{actions.Default}
	for _, p := range []actions.Protocol{actions.LL, actions.Simple} {
		for _, channels := range []uint8{2, 8} {
			set = append(set, actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: p, Channels: channels})
		}
	}
	best := set[2]
	for _, name := range adaptive() {
		g := makeGuard(t, name, set, bucketOf(16), nil, 1)
		w := simWorld{func(a actions.Action) float64 {
			switch a {
			case best:
				return 6e4
			case actions.Default:
				return 1e5
			}
			return 1.3e5
		}, 0.05, rand.New(rand.NewPCG(1, 9))}
		delayed, cost, ran := false, 0.0, 0
		const calls = 3000
		for k := 0; k < calls; {
			base, trials := g.Propose(1)
			if len(trials) > 0 {
				base = trials[0]
			}
			o := w.call(base)
			if base == best && !delayed {
				delayed, o.SignalNs, o.CounterNs = true, 2e5, 0
			}
			g.Observe(o)
			cost += w.cost(base)
			if k++; base == best && k > calls-100 {
				ran++
			}
		}
		if !delayed {
			t.Errorf("%s never tried it: shows nothing", name)
		}
		if ran < 80 {
			t.Errorf("%s: the best action ran in %d of the last 100 calls", name, ran)
		}
		if cost > 0.75*calls*1e5 { // 0.6 is possible
			t.Errorf("%s: %.3f of the default's cost", name, cost/calls/1e5)
		}
	}
}
