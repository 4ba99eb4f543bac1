package tuner

import (
	"dynamiccl/actions"
	"dynamiccl/state"
)

// ctaChoices are the numbers of CTAs that are tried of our own kernels: far apart, for what they are worth grows by passes,
// and a learner draws a line between them. 128 are none: a kernel of ours has a multiprocessor for each CTA, and so many leave no
// place for those of other communicators (places.go). sweep takes lsa/bulk/128.
var ctaChoices = []uint8{1, 4, 16, 32, 64}

// defaultCTAs are those of a kernel whose action has no number (DEFAULT_CTAS of kernels/host/launch.c).
const defaultCTAs = 16

// Bulk pays barriers for plain 16-byte stores, which is for large calls and all CTAs that there are. On 4 H200 it was the
// fastest from 4 MiB on, and 1.5 times as slow as lines at 1 MiB (docs/figures).
const (
	leastBulk     = 32
	leastBulkLog2 = 19
)

// lsaSet lists our kernels that every rank can run in the bucket, with threads of their own number: no other one was faster on 2 H200
// by more than 1.5% at any size (docs/design/choices.md). The first number of CTAs that covers the bucket's smallest
// call in one pass of a quarter of their threads is the last: more would have nothing to do.
func lsaSet(b state.Bucket, marks MarkSet) (set []actions.Action) {
	for k := range actions.Kernel(actions.NumKernels) {
		a := actions.Action{Path: actions.PathLSA, Kernel: k}
		bulk := k == actions.Bulk || k == actions.Direct
		if !marks.Has(a) || bulk && b.Log2Bytes < leastBulkLog2 {
			continue
		}
		for _, n := range ctaChoices {
			if bulk && n < leastBulk {
				continue
			}
			a.Channels = n
			set = append(set, a)
			if uint64(n)*actions.CTABytes/4 >= 1<<b.Log2Bytes {
				break
			}
		}
	}
	return set
}
