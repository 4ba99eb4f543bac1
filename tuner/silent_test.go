package tuner

import (
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// Actions whose calls nobody ever hears of are given up after some batches, and the best of all others is found.
func TestTrialsThatNobodyHearsOfEnd(t *testing.T) {
	for _, learner := range []string{"lstm", "ucb", "thompson", "successive-halving", "coordinate-descent"} {
		t.Run(learner, func(t *testing.T) {
			b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 20}
			p := newCaller(t, learner, Config{Explore: true, SampleEvery: 1}, CommJoined{Shape: state.Shape{Ranks: 2, Nodes: 1}}, b, marksOfKernels|0b111_000)
			p.ranks = 2
			silent := func(a actions.Action) bool { return a.Path == actions.PathLSA && a.Kernel == actions.Bulk }
			cost := func(a actions.Action) state.Ns {
				switch {
				case a == actions.Default:
					return 40_000
				case a.Path == actions.PathLSA && a.Kernel == actions.TwoShot:
					return 20_000 + 200*state.Ns(64-a.Channels)
				}
				return 60_000
			}
			made := map[bool]int{} // of actions that are silent
			play := func(calls int) {
				for range calls {
					a := p.next()
					made[silent(a)]++
					if !silent(a) {
						p.tell(state.Ns(p.made)*1000, uint64(p.made), a, a, cost(a))
					}
					p.tick(state.Ns(p.made) * 1000)
				}
			}
			play(20_000)
			v := p.core.Buckets()[0]
			if v.Choice.Kernel != actions.TwoShot || v.Choice.Path != actions.PathLSA || cost(v.Choice) > 27_000 {
				t.Errorf("%s is in force", v.Choice)
			}
			first := made[true]
			if first == 0 || first > silentBatches*MaxTrials {
				t.Errorf("%d calls that nobody heard of", first)
			}
			if learner != "coordinate-descent" {
				return // all others rest by themselves
			}
			if names(v.Silent) != "lsa/bulk/64 lsa/bulk/32" {
				t.Errorf("%s are not tried any more", names(v.Silent))
			}
			if play(10_000); made[true] != first {
				t.Errorf("%d more calls that nobody heard of", made[true]-first)
			}
		})
	}
}
