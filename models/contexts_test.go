package models_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/models"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// Where NICs have enough to do with few contexts, further ones cost; where they do not, contexts move puts side by side. Learners go to
// the shared context when the first comes to be so, and back when it ends. The policy finds it where it is so from the beginning; that
// a condition has changed tells it nothing of contexts, for it has met none in training (models/README.md).
func TestMovesToFewerContextsAndBack(t *testing.T) {
	bucket := state.Bucket{Collective: actions.AllToAll, Log2Bytes: 16}
	set := tuner.ActionSet(bucket, tuner.MarkGDAKI|tuner.MarkContexts, 0)
	room := func(ctas, contexts float64) float64 { return 9 + 8/contexts + 2/ctas }
	saturated := func(ctas, contexts float64) float64 { return 7 + 3*contexts + 6/ctas }
	for _, name := range []string{agents.NameLSTM, agents.NameUCB, agents.NameCoordinateDescent} {
		newLearner, err := models.New(name)
		if err != nil {
			t.Fatal(err)
		}
		var s *tuner.Session
		rng := rand.New(rand.NewPCG(1, 2))
		for phase, us := range []func(ctas, contexts float64) float64{room, saturated, room} {
			if phase == 0 || name == agents.NameLSTM {
				s, err = tuner.NewSession(tuner.SessionConfig{NewLearner: newLearner, Guard: agents.DefaultGuardConfig().Budgeted(0.3),
					Topology: state.Topology{Shape: state.Shape{Ranks: 2, Nodes: 2}}, Seed: 1, Buckets: []tuner.SessionBucket{{Bucket: bucket, Set: set}}})
				if err != nil {
					t.Fatal(err)
				}
			}
			cost := func(a actions.Action) float64 {
				if a == actions.Default {
					return 40e3
				}
				contexts := min(a.Channels, actions.MaxContexts)
				if a.Contexts != 0 {
					contexts = min(contexts, a.Contexts)
				}
				return 1e3 * us(float64(a.Channels), float64(contexts))
			}
			tell := func(a actions.Action) {
				ns := cost(a) * math.Exp(0.03*rng.NormFloat64())
				s.Tell(0, slices.Index(set, a), state.Ns(0.7*ns), state.Ns(ns))
			}
			var choice actions.Action
			for range 60 {
				base, trials, changed := s.Plan(0)
				if choice = base; changed {
					for _, a := range slices.Clone(trials) {
						tell(a)
					}
				}
				for range 100 {
					tell(base)
				}
			}
			best := slices.MinFunc(set, func(a, b actions.Action) int { return int(cost(a) - cost(b)) })
			if (best.Contexts == 1) != (phase == 1) {
				t.Fatalf("phase %d has %s for its best", phase, best)
			}
			if choice.Contexts != best.Contexts || cost(choice) > 1.08*cost(best) {
				t.Errorf("%s, phase %d: %s takes %.1f us, %s %.1f", name, phase, choice, cost(choice)/1e3, best, cost(best)/1e3)
			}
		}
	}
}
