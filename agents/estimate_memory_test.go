package agents

import (
	"math"
	"math/rand/v2"
	"testing"

	"dynamiccl/actions"
)

// A load that comes and goes in steps is many conditions, none of which lasts. Behind it the condition before is not learned anew.
func TestMemoryOutlivesUnsteadyLoad(t *testing.T) {
	const quiet, step, steps, behind = 3000, 100, 30, 200
	for _, name := range adaptive() {
		on := 0.0
		for seed := range uint64(5) {
			rng := rand.New(rand.NewPCG(seed, 4))
			set := []actions.Action{actions.Default}
			for _, algorithm := range []actions.Algorithm{actions.Ring, actions.Tree, actions.PAT} {
				for _, protocol := range []actions.Protocol{actions.LL, actions.LL128, actions.Simple} {
					for _, channels := range []uint8{1, 2, 4, 8, 16, 24} {
						set = append(set, actions.Action{Path: actions.PathCollective, Algorithm: algorithm, Protocol: protocol, Channels: channels})
					}
				}
			}
			load := 1.0
			cost := func(a actions.Action) float64 {
				if a == actions.Default {
					return 1e5 * load
				}
				ns := 0.85e5 * load * map[actions.Algorithm]float64{actions.Ring: 1, actions.Tree: 1.15, actions.PAT: 0.9}[a.Algorithm] *
					map[actions.Protocol]float64{actions.LL: 1.3, actions.LL128: 1.15, actions.Simple: 1}[a.Protocol] *
					(1 + 0.06*math.Abs(math.Log2(float64(a.Channels))-2))
				if load > 1 {
					ns *= 1.4
				}
				return ns
			}
			sim := simWorld{cost, 0.1, rng}
			g := makeGuard(t, name, set, bucketOf(16), nil, seed)
			play := func(calls int) (gain float64) { // over the default, of what can be had
				for range calls {
					gain += (1e5 - cost(sim.step(g))) / 0.235e5 / float64(calls)
				}
				return gain
			}
			play(quiet)
			if before := play(100); before < 0.5 {
				t.Fatalf("%s: %.2f of what can be had before the load: shows nothing", name, before)
			}
			for range steps {
				load = 1.5 + 6*rng.Float64()
				g.Shift(DiagnosisCongestion)
				play(step)
			}
			load = 1
			g.Shift(DiagnosisRecovered)
			on += play(behind)
		}
		// An untrained policy learns little in 3,000 calls, and has little to come back to.
		if gain := on / 5; gain < 0.7 && name != NameLSTM || gain < 0.45 {
			t.Errorf("%s: %.2f of what can be had behind the load", name, gain)
		}
	}
}
