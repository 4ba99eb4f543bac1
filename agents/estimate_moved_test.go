package agents

import (
	"math"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// Of NCCL's choices all move by one step, and it is the mean of what was seen, weighted by precision, that counts.
func TestMovedIsAStepWithoutGIN(t *testing.T) {
	m := newCostModel(parsed(t, "default Ring/LL/4 Tree/Simple/16 Ring/Simple/2"), bucketOf(16))
	const drift = 0.3
	each, weight, sum := driftEach*driftEach*drift*drift, 1/(drift*drift), 0.0
	since := newMoved(drift)
	for i, seen := range []struct{ by, noise float64 }{{}, {0.2, 0.01}, {0.5, 0.02}} {
		if i == 0 {
			continue
		}
		since.observe(&m.feat[i], seen.by, seen.noise)
		weight += 1 / (each + seen.noise)
		sum += seen.by / (each + seen.noise)
	}
	by, variance := since.of(&m.feat[3])
	if math.Abs(by-sum/weight) > 1e-12 || math.Abs(variance-1/weight-each) > 1e-12 {
		t.Errorf("moved by %g with variance %g, want %g, %g", by, variance, sum/weight, 1/weight+each)
	}
}

// NICs saturate, the default stays as it was. Of both ends of CTAs and of the other contexts one call each was made; what lies between was
// measured before alone, when the most CTAs were best. Taken for moved by one step it is 0.30 off in the mean, and the best is thought to be
// the fewest CTAs.
func TestEndsSayWhatLiesBetween(t *testing.T) {
	set := parsed(t, "default gin/gdaki/1 gin/gdaki/2 gin/gdaki/4 gin/gdaki/4/c1 gin/gdaki/8 gin/gdaki/8/c1 gin/gdaki/16 gin/gdaki/16/c1")
	cost := func(a actions.Action, saturated bool) state.Ns {
		ctas := float64(a.Channels)
		contexts := min(ctas, actions.MaxContexts)
		if a.Contexts != 0 {
			contexts = 1
		}
		switch {
		case a == actions.Default:
			return 60e3
		case saturated:
			return state.Ns(1e3 * (7 + 1.3*ctas + 9/ctas + 2/contexts))
		}
		return state.Ns(1e3 * (9 + 8/contexts + 7/ctas))
	}
	u := makeLearner(t, NameUCB, set, bucketOf(16), nil, 1).(*ucb)
	for range 8 {
		for _, a := range set {
			u.Observe(state.Observation{Action: a, Ran: a, SignalNs: cost(a, false)})
		}
	}
	u.Shift(DiagnosisUnknown)
	measured := parsed(t, "default gin/gdaki/16 gin/gdaki/16/c1 gin/gdaki/1")
	for _, a := range measured {
		u.Observe(state.Observation{Action: a, Ran: a, SignalNs: cost(a, true)})
	}
	u.refresh(0.03)
	var squares, n float64
	best := 1
	for i := 1; i < len(set); i++ {
		if u.model.mean[i] < u.model.mean[best] {
			best = i
		}
		if u.arms.samples[i].n == 0 {
			mean, sd := u.model.behind(i, 0)
			d := math.Log(float64(cost(set[i], true))/float64(cost(actions.Default, true))) - mean
			squares, n = squares+d*d, n+1
			t.Logf("%s: %.2f +-%.2f expected, %.2f off", set[i], mean, sd, d)
		}
	}
	if rms := math.Sqrt(squares / n); rms > 0.2 || set[best].Channels != 2 && set[best].Channels != 4 {
		t.Errorf("%.2f off in the mean, and %s is thought to be best", rms, set[best])
	}
}
