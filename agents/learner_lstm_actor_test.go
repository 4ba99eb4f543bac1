package agents

import (
	"math"
	"math/rand/v2"
	"testing"

	"dynamiccl/actions"
)

func newActor(t *testing.T, temperature float64, seed uint64) *lstm {
	t.Helper()
	opt := DefaultPolicyOptions()
	opt.Actor = Actor{Optimism: 0.5, Temperature: temperature}
	return newLSTM(untrained(), opt, Task{Set: fullSet(), Bucket: bucketOf(20), Rand: rand.New(rand.NewPCG(seed, 1))})
}

// The guard and all relative costs need the default first, whatever the actor hopes for.
func TestActorBeginsWithTheDefault(t *testing.T) {
	for _, temperature := range []float64{0, 0.05} {
		l := newActor(t, temperature, 1)
		w := simWorld{func(a actions.Action) float64 { return 1e5 * (1 + float64(a.Channels)/8) }, 0.05, rand.New(rand.NewPCG(1, 7))}
		for call := range 60 {
			if call == 30 {
				l.Shift(DiagnosisCongestion)
			}
			base, trials := l.Propose(1)
			a := base
			if len(trials) > 0 {
				a = trials[0]
			}
			if call%30 == 0 && a != actions.Default {
				t.Errorf("temperature %g, call %d: %s, want the default", temperature, call, a)
			}
			l.Observe(w.call(a))
		}
	}
}

// Without temperature the greatest hope is taken, with it what is as likely as the softmax says.
func TestActorChoosesByHope(t *testing.T) {
	const temperature, draws = 0.2, 4000
	l, greedy := newActor(t, temperature, 2), newActor(t, 0, 2)
	counts := make([]float64, len(l.set))
	for i := range l.set {
		x := 0.1 * math.Sin(float64(i))
		l.worth[i], greedy.worth[i] = x, x
	}
	best, sum := 0, 0.0
	for i, x := range l.worth {
		sum += math.Exp(x / temperature)
		if x > l.worth[best] {
			best = i
		}
	}
	if got := greedy.decide(); got != best {
		t.Errorf("action %d, want %d", got, best)
	}
	for range draws {
		counts[l.decide()]++
	}
	chi := 0.0
	for i, x := range l.worth {
		want := draws * math.Exp(x/temperature) / sum
		chi += (counts[i] - want) * (counts[i] - want) / want
	}
	if n := float64(len(counts) - 1); math.Abs(chi-n) > 4*math.Sqrt(2*n) {
		t.Errorf("chi squared %.1f for %g degrees of freedom", chi, n)
	}
}

// A policy file says how its policy chooses.
func TestActorSurvivesItsFile(t *testing.T) {
	file, err := EncodePolicy(untrained(), PolicyCard{Horizon: 8, Optimism: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	_, card, err := DecodePolicy(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := card.options().Actor; got != (Actor{Optimism: 0.5}) {
		t.Errorf("it chooses as %+v", got)
	}
}
