package tuner

import (
	"dynamiccl/actions"
	"dynamiccl/state"
)

// ctaChoices are the numbers of CTAs that are tried of our own kernels: far apart, for what they are worth grows by passes,
// and a learner draws a line between them.
var ctaChoices = []uint8{1, 4, 16, 32, actions.MaxCTAs}

// leastBulk: bulk pays barriers for plain 16-byte stores, which is for sizes at which a few CTAs are out of the question.
const leastBulk = 16

// lsaSet lists our kernels that every rank can run in the bucket. The first number of CTAs that covers the bucket's largest
// call in one pass is the last: more would have nothing to do.
func lsaSet(b state.Bucket, marks MarkSet) (set []actions.Action) {
	largest := uint64(2)<<b.Log2Bytes - 1
	for k := range actions.Kernel(actions.NumKernels) {
		a := actions.Action{Path: actions.PathLSA, Kernel: k}
		if !marks.Has(a) {
			continue
		}
		for _, n := range ctaChoices {
			if k == actions.Bulk && n < leastBulk {
				continue
			}
			a.Channels = n
			set = append(set, a)
			if uint64(n)*actions.CTABytes >= largest {
				break
			}
		}
	}
	return set
}
