package models_test

import (
	"fmt"
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

// surface is what a call over GIN takes, in us.
type surface func(ctas, contexts float64) float64

func (us surface) costNs(a actions.Action) float64 {
	contexts := min(a.Channels, actions.MaxContexts)
	if a.Contexts != 0 {
		contexts = min(contexts, a.Contexts)
	}
	return 1e3 * us(float64(a.Channels), float64(contexts))
}

// best is of the set without the default, which is slower than all of them here.
func (us surface) best(set []actions.Action) actions.Action {
	return slices.MinFunc(set[1:], func(a, b actions.Action) int { return int(us.costNs(a) - us.costNs(b)) })
}

// seen reports whether a change from one surface to another shows in calls of what was best before, and makes it worth leaving.
func seen(set []actions.Action, from, to surface) bool {
	a, b := from.best(set), to.best(set)
	return math.Abs(to.costNs(a)/from.costNs(a)-1) > 0.15 && to.costNs(a) > 1.15*to.costNs(b)
}

// Where NICs have enough to do with few contexts, further ones cost; where they do not, contexts move puts side by side. Learners go to
// the shared context when the first comes to be so, and back when it ends, whichever of them they met first.
func TestMovesToFewerContextsAndBack(t *testing.T) {
	moves(t, tuner.MarkGDAKI|tuner.MarkContexts, func(u func(least, most float64) float64) (room, saturated surface) {
		launch, apart, share := u(6, 12), u(5, 12), u(0.5, 4)
		queue, each, part := u(5, 10), u(1.5, 4), u(3, 8)
		return func(ctas, contexts float64) float64 { return launch + apart/contexts + share/ctas },
			func(ctas, contexts float64) float64 { return queue + each*contexts + part/ctas }
	}, func(room, saturated actions.Action) bool { return room.Contexts == 0 && saturated.Contexts == 1 })
}

// The same of CTAs, each of which puts for itself: as many as there are, and few.
func TestMovesToFewerCTAsAndBack(t *testing.T) {
	moves(t, tuner.MarkGDAKI, func(u func(least, most float64) float64) (room, saturated surface) {
		launch, share := u(6, 12), u(10, 25)
		queue, each, part := u(5, 10), u(0.6, 2), u(3, 10)
		return func(ctas, _ float64) float64 { return launch + share/ctas },
			func(ctas, _ float64) float64 { return queue + each*ctas + part/ctas }
	}, func(room, saturated actions.Action) bool { return room.Channels == 16 && saturated.Channels <= 4 })
}

// moves takes learners through changes between conditions that are drawn, in one session each, as a daemon does: in batches, between which
// many calls run what is in force.
func moves(t *testing.T, marks tuner.MarkSet, draw func(u func(least, most float64) float64) (room, saturated surface),
	fits func(room, saturated actions.Action) bool) {
	bucket := state.Bucket{Collective: actions.AllToAll, Log2Bytes: 16}
	set := tuner.ActionSet(bucket, marks, 0)
	for _, name := range []string{agents.NameLSTM, agents.NameUCB, agents.NameCoordinateDescent} {
		newLearner, err := models.New(name)
		if err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(8) {
			rng := rand.New(rand.NewPCG(seed, 1))
			u := func(least, most float64) float64 { return least + (most-least)*rng.Float64() }
			room, saturated := draw(u)
			for !fits(room.best(set), saturated.best(set)) || !seen(set, room, saturated) || !seen(set, saturated, room) {
				room, saturated = draw(u)
			}
			defaultNs := 1e3 * u(40, 60)
			for first, order := range map[string][]surface{"room": {room, saturated, room}, "saturated": {saturated, room, saturated}} {
				t.Run(fmt.Sprintf("%s/%d/%s first", name, seed, first), func(t *testing.T) {
					t.Parallel()
					s, err := tuner.NewSession(tuner.SessionConfig{NewLearner: newLearner, Seed: seed,
						Topology: state.Topology{Shape: state.Shape{Ranks: 2, Nodes: 2}}, Buckets: []tuner.SessionBucket{{Bucket: bucket, Set: set}}})
					if err != nil {
						t.Fatal(err)
					}
					noise := rand.New(rand.NewPCG(seed, 2))
					for phase, us := range order {
						choice := play(s, set, 40, func(a actions.Action) float64 {
							ns := defaultNs
							if a != actions.Default {
								ns = us.costNs(a)
							}
							return ns * math.Exp(0.03*noise.NormFloat64())
						})
						best := us.best(set)
						if choice == actions.Default || choice.Contexts != best.Contexts || us.costNs(choice) > 1.08*us.costNs(best) {
							t.Errorf("phase %d: %s takes %.1f us, %s %.1f", phase, choice, us.costNs(choice)/1e3, best, us.costNs(best)/1e3)
						}
					}
				})
			}
		}
	}
}

// play runs so many plans of a session's only bucket, and gives what is in force in the end.
func play(s *tuner.Session, set []actions.Action, plans int, ns func(actions.Action) float64) (choice actions.Action) {
	tell := func(a actions.Action) {
		x := ns(a)
		s.Tell(0, slices.Index(set, a), state.Ns(0.7*x), state.Ns(x))
	}
	for range plans {
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
	return choice
}
