package agents

import (
	"math/rand/v2"
	"testing"

	"dynamiccl/actions"
)

func TestRestsAndLooks(t *testing.T) {
	l := &lstm{}
	for n, want := range map[int]bool{0: false, 255: false, 256: false, 287: false, 288: true, 511: true, 512: false, 543: false, 544: true, 1023: true,
		1024: false, 1055: false, 1056: true, 1 << 30: false, 1<<30 + 32: true} {
		l.sinceShift = n
		if l.rests() != want {
			t.Errorf("after %d calls of a condition: rests %v", n, l.rests())
		}
	}
}

// Where everything costs the same there is always a little to learn; a policy must come to rest all the same, and start
// again when conditions change.
func TestPolicyComesToRest(t *testing.T) {
	l := makeLearner(t, NameLSTM, fullSet(), bucketOf(12), nil, 1).(*lstm)
	w := simWorld{func(actions.Action) float64 { return 1e5 }, 0.05, rand.New(rand.NewPCG(1, 7))}
	late := 0
	for l.sinceShift < 3000 {
		resting := l.rests()
		_, trials := l.Propose(12)
		if resting && len(trials) > 0 {
			t.Fatalf("%d trials while at rest, after %d calls", len(trials), l.sinceShift)
		}
		if l.sinceShift > settleCalls+lookCalls {
			late += len(trials)
		}
		for _, a := range trials {
			l.Observe(w.call(a))
		}
		l.Observe(w.call(actions.Default))
	}
	if most := 3 * (lookCalls + 12); late > most {
		t.Errorf("%d trials after the first rest, want at most %d in three looks", late, most)
	}
	l.Shift(DiagnosisCongestion)
	if _, trials := l.Propose(12); len(trials) == 0 {
		t.Error("nothing is tried in a new condition")
	}
}
