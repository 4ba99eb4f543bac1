package tuner_test

import (
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// explored counts the trials of all entries that plans ask for, the default's not counted.
func explored(g *group, buckets []state.Bucket, calls int) (trials int) {
	seen := map[uint32]bool{}
	for range calls {
		g.run(buckets, 1)
		if g.next == nil {
			continue
		}
		for _, e := range g.next.Entries {
			for _, a := range e.Trials {
				if a != actions.Default && !seen[e.ID] {
					trials++
				}
			}
			seen[e.ID] = true
		}
	}
	return trials
}

// The budget of exploration holds for buckets that come after it was set, and changes in those that are there.
func TestBudgetOfExploration(t *testing.T) {
	quiet := load(t, "quiet")
	buckets := quiet.Buckets()[:4]
	budget := func(share float64) agents.GuardConfig { return agents.DefaultGuardConfig().Budgeted(share) }
	g := newGroup(t, agents.NameCoordinateDescent, true, quiet, 1)
	g.core.SetGuard(budget(0))
	g.join(tuner.CommJoined{Explore: true})
	g.marks(buckets)
	if n := explored(g, buckets, 400); n != 0 {
		t.Errorf("%d trials without a budget", n)
	}
	g.core.SetGuard(budget(0.2))
	if n := explored(g, buckets, 400); n < 10 {
		t.Errorf("%d trials with a fifth of the time to lose", n)
	}
}
