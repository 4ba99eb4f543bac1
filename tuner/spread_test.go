package tuner

import (
	"math"
	"math/rand/v2"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

// People and the store read how much the calls of an action vary. One call among thousands that a pause of a second delayed is not that.
func TestOneDelayedCallIsNoSpread(t *testing.T) {
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}
	p := newCaller(t, agents.NameDefault, Config{Explore: true, SampleEvery: 1}, CommJoined{}, b, 0b111_111)
	rng := rand.New(rand.NewPCG(1, 2))
	for call := range 5000 {
		ns := 50_000 * math.Exp(0.05*rng.NormFloat64())
		if call == 2000 {
			ns = 1e9
		}
		p.tell(state.Ns(call), uint64(call), actions.Default, actions.Default, state.Ns(ns))
		p.next()
	}
	if e := p.core.Buckets()[0].Choices[0].Estimate; e.N != 5000 || math.Sqrt(e.VarLog) < 0.04 || math.Sqrt(e.VarLog) > 0.2 {
		t.Errorf("%d calls vary by %.3f", e.N, math.Sqrt(e.VarLog))
	}
}
