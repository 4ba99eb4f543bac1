package agents

import (
	"math"
	"slices"
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

// NICs come to have enough to do with few CTAs, or with one context; the default stays as it was. A call each was made of what ran, the most
// CTAs, of the same with the other contexts, and of the fewest; all else was measured before alone.
func TestEndsSayWhatLiesBetween(t *testing.T) {
	set := parsed(t, "default gin/gdaki/1 gin/gdaki/2 gin/gdaki/4 gin/gdaki/4/c1 gin/gdaki/8 gin/gdaki/8/c1 gin/gdaki/16 gin/gdaki/16/c1")
	for what, c := range map[string]struct {
		us   func(ctas, contexts float64) float64
		best string
	}{
		"CTAs":     {func(ctas, contexts float64) float64 { return 7 + 1.3*ctas + 9/ctas + 2/contexts }, "gin/gdaki/2 gin/gdaki/4"},
		"contexts": {func(ctas, contexts float64) float64 { return 7 + 3*contexts + 6/ctas }, "gin/gdaki/4/c1 gin/gdaki/8/c1 gin/gdaki/16/c1"},
	} {
		cost := func(a actions.Action, us func(ctas, contexts float64) float64) state.Ns {
			if a == actions.Default {
				return 60e3
			}
			contexts := float64(min(a.Channels, actions.MaxContexts))
			if a.Contexts != 0 {
				contexts = 1
			}
			return state.Ns(1e3 * us(float64(a.Channels), contexts))
		}
		room := func(ctas, contexts float64) float64 { return 9 + 8/contexts + 7/ctas }
		u := makeLearner(t, NameUCB, set, bucketOf(16), nil, 1).(*ucb)
		for range 8 {
			for _, a := range set {
				u.Observe(state.Observation{Action: a, Ran: a, SignalNs: cost(a, room)})
			}
		}
		u.Shift(DiagnosisUnknown)
		for _, a := range parsed(t, "default gin/gdaki/16 gin/gdaki/16/c1 gin/gdaki/1") {
			u.Observe(state.Observation{Action: a, Ran: a, SignalNs: cost(a, c.us)})
		}
		u.refresh(0.03)
		var squares, n float64
		best := 1
		for i := 1; i < len(set); i++ {
			if u.model.mean[i] < u.model.mean[best] {
				best = i
			}
			if u.arms.samples[i].n > 0 {
				continue
			}
			mean, sd := u.model.behind(i, 0)
			d := math.Log(float64(cost(set[i], c.us))/60e3) - mean
			squares, n = squares+d*d, n+1
			t.Logf("%s: %s at %.2f +-%.2f, %.2f off", what, set[i], mean, sd, d)
		}
		if rms := math.Sqrt(squares / n); rms > 0.18 || !slices.Contains(parsed(t, c.best), set[best]) {
			t.Errorf("%s: %.2f off in the mean, and %s is thought to be best", what, rms, set[best])
		}
	}
}
