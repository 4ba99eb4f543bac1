package tuner

import (
	"dynamiccl/actions"
	"dynamiccl/state"
)

// ginCTAs are the numbers of CTAs that are tried of our kernels on GIN, up to DYN_GIN_MAX_BLOCKS of kernels/gin; of hierarchical
// ones these are channels, up to DYN_GIN_CHANNELS. Up to 4 each has a context of its own, where NCCL grants so many; more share them.
var ginCTAs = []uint8{1, 2, 4, 8, 16}

// ginCTABytes is what a CTA of a quarter of the threads covers of a call in one pass.
const ginCTABytes = actions.CTAThreads / 4 * 16

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
