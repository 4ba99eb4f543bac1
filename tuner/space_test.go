package tuner

import (
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// A tree's cost can be measured where receives are seen, that is over a network, or where CUDA events time the calls, and
// not by kernel times on one node.
func TestTreesAreTriedWhereTheirEndIsSeen(t *testing.T) {
	for _, c := range []struct {
		nodes  int
		events bool
		want   bool
	}{{1, false, false}, {2, false, true}, {4, false, true}, {1, true, true}, {2, true, true}} {
		set, trees, rings := measurable(ActionSet(state.Bucket{Collective: actions.AllReduce, Log2Bytes: 20}, 1<<0|1<<3|1<<13, 32), c.nodes, c.events), 0, 0
		for _, a := range set {
			if a.Path == actions.PathCollective && a.Algorithm == actions.Tree {
				trees++
			}
			if a.Path == actions.PathCollective && a.Algorithm == actions.Ring {
				rings++
			}
		}
		if (trees > 0) != c.want || rings == 0 || set[0] != actions.Default {
			t.Errorf("%d nodes, events %v: %d trees and %d rings of %v, want trees %v", c.nodes, c.events, trees, rings, set, c.want)
		}
	}
}
