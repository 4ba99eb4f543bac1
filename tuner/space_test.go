package tuner

import (
	"testing"

	"dynamiccl/actions"
)

// A tree's cost can be measured where receives are seen, that is over a network, and not on one node.
func TestTreesAreTriedOverNetworksAlone(t *testing.T) {
	for nodes, want := range map[int]bool{1: false, 2: true, 4: true} {
		set, trees, rings := measurable(ActionSet(1<<0|1<<3|1<<13, 32), nodes), 0, 0
		for _, a := range set {
			if a.Path == actions.PathCollective && a.Algorithm == actions.Tree {
				trees++
			}
			if a.Path == actions.PathCollective && a.Algorithm == actions.Ring {
				rings++
			}
		}
		if (trees > 0) != want || rings == 0 || set[0] != actions.Default {
			t.Errorf("%d nodes: %d trees and %d rings of %v, want trees %v", nodes, trees, rings, set, want)
		}
	}
}
