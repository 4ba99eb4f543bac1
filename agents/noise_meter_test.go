package agents

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A communicator of months has noise of its own, which changes: what is known of it follows within tens of thousands of calls, whatever came before.
func TestNoiseMeterForgets(t *testing.T) {
	const long, soon, within = 1_000_000, 40_000, 0.1
	rng := rand.New(rand.NewPCG(1, 1))
	var m noiseMeter
	for _, phase := range []struct {
		sigma float64
		calls int
	}{{0.05, long}, {0.15, soon}, {0.03, soon}} {
		for range phase.calls {
			m.add(phase.sigma*rng.NormFloat64(), 1<<20, math.Sqrt(m.variance(priorSigma*priorSigma)))
		}
		if got := math.Sqrt(m.variance(priorSigma * priorSigma)); math.Abs(got/phase.sigma-1) > within {
			t.Errorf("noise of %.3f, after %d calls of it, is taken for %.3f", phase.sigma, phase.calls, got)
		}
	}
}
