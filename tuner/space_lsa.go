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

// threads is a number of threads of a CTA that is tried beside the kernel's own: of one kernel, from one size to another, with the
// greatest number of CTAs that the set has of it, so that a size has one trial more of each kernel.
type threads struct {
	kernel      actions.Kernel
	least, most uint8 // floor(log2(bytes))
	warps       uint8
}

// threadChoices has none before a table shows where one pays; what stands in it is tried in running programs. To be measured:
//
//	dynamiccld sweep --min 512K --max 64M --choices 'lsa/bulk/*/t256,lsa/bulk,lsa/direct/*/t256,lsa/direct'
//	dynamiccld sweep --min 4K --max 1M --choices 'lsa/oneshot/*/t128,lsa/oneshot/*/t512,lsa/oneshot,lsa/twoshot/*/t128,lsa/twoshot/*/t512,lsa/twoshot'
//
// A line for bulk from 512 KiB on would be {actions.Bulk, leastBulkLog2, state.NumBuckets - 1, 8}.
var threadChoices []threads

// withThreads adds what threadChoices has for a kernel whose last choice in the set is a.
func withThreads(set []actions.Action, b state.Bucket, a actions.Action) []actions.Action {
	for _, t := range threadChoices {
		if t.kernel == a.Kernel && b.Log2Bytes >= t.least && b.Log2Bytes <= t.most {
			a.Warps = t.warps
			set = append(set, a)
		}
	}
	return set
}

// lsaSet lists our kernels that every rank can run in the bucket. The first number of CTAs that covers the bucket's smallest
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
		set = withThreads(set, b, a)
	}
	return set
}
