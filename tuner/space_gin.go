package tuner

import (
	"slices"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// ginCTAs are the numbers of CTAs that are tried of our kernels on GIN, up to DYN_GIN_MAX_BLOCKS of kernels/gin; of hierarchical
// ones these are channels, up to DYN_GIN_CHANNELS. Up to 4 each has a context of its own, where NCCL grants so many; more share them.
var ginCTAs = []uint8{1, 2, 4, 8, 16}

// ginCTABytes is what a CTA of a quarter of the threads covers of a call in one pass.
const ginCTABytes = actions.CTAThreads / 4 * 16

// railChannels are as many as hierarchical kernels have (DYN_GIN_CHANNELS of kernels/gin/pipes.h): an action of more CTAs runs them.
const railChannels = 8

// onRails leaves out kernels on GIN that would be one under two names. Where nodes have several ranks each, all but AllReduce
// run hierarchical (docs/design.md, decision 30), ReduceScatter for common types alone, which a bucket does not know.
func onRails(set []actions.Action, c actions.Collective, shape state.Shape) []actions.Action {
	if shape.Nodes < 2 || shape.Ranks <= shape.Nodes || c == actions.AllReduce {
		return set
	}
	return slices.DeleteFunc(set, func(a actions.Action) bool { return a.Path == actions.PathGIN && a.Channels > railChannels })
}

// ginSet lists our kernels on GIN that every rank can run in the bucket, up to the first number of CTAs that covers its
// smallest call in one pass. A collective has one kernel, so an action names the backend alone.
func ginSet(b state.Bucket, marks MarkSet) (set []actions.Action) {
	for backend := actions.Backend(1); backend < actions.NumBackends; backend++ {
		a := actions.Action{Path: actions.PathGIN, Backend: backend}
		if !marks.Has(a) {
			continue
		}
		for _, n := range ginCTAs {
			a.Channels = n
			set = append(set, a)
			if uint64(n)*ginCTABytes >= 1<<b.Log2Bytes {
				break
			}
		}
	}
	return set
}
