package nccltuner

import (
	"sync/atomic"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// knownMarks are the bits 3*algorithm+protocol of algorithms that the action space has.
const knownMarks = 1<<21 - 1

// Further bits of dyn_rank.marks.
const (
	markSeen     = 1 << 31
	markDeviceLL = 1 << 30
	markKernels  = (1<<NumKernels - 1) << 26                         // of our own
	markGIN      = 1<<23<<BackendGdaki | 1<<23<<BackendProxy | 1<<22 // and its contexts
)

// lateMarks come when a rank learns that it can, sooner on one than on another: ranks that differ in them do not disagree,
// they count once all have them.
const lateMarks = markDeviceLL | markKernels | markGIN

// BucketMarks is what the ranks say about one bucket. A plan may use Set only when Seen is the number of Reporters and
// Differ is false (docs/design.md, decision 7).
type BucketMarks struct {
	// Bit 3*algorithm+protocol: no rank that reported has ever seen it marked -1; bit 30: all run LL on NCCL's device kernel;
	// bit 26+kernel: all can run our kernel. On registered memory: no rank has had the name refused.
	Set    uint32
	Seen   int  // ranks that reported
	Differ bool // ranks that reported do not agree
	// Some have run our own kernel there alone, and NCCL was not asked yet: nothing is known of what it allows, so Set has none of it.
	Unasked bool
}

// MarkTable has one BucketMarks a bucket.
type MarkTable [NumCollectives][NumBuckets]BucketMarks

// Of gives the marks of a bucket; the zero value for one that does not exist.
func (t *MarkTable) Of(b state.Bucket) BucketMarks {
	if int(b.Collective) >= NumCollectives || int(b.Log2Bytes) >= NumBuckets {
		return BucketMarks{}
	}
	return t[b.Collective][b.Log2Bytes]
}

// NewMarks reports whether any rank's marks are others than when it was last asked; they seldom are.
func (r *Record) NewMarks() (moved bool, err error) {
	err = r.memory.guard(func() {
		if r.heard == nil {
			r.heard = make([]markWords, len(r.ranks))
			moved = true
		}
		for i := range r.ranks {
			words, heard := r.ranks[i].markWords(), &r.heard[i]
			for w := range words {
				if word := atomic.LoadUint64(&words[w]); word != heard[w] {
					heard[w], moved = word, true
				}
			}
		}
	})
	return moved, err
}

// Marks reads the marks of all ranks; those on other hosts are one.
func (r *Record) Marks(t *MarkTable) error {
	return r.memory.guard(func() {
		*t = MarkTable{}
		all := r.reporters()
		for i := range all {
			for c := range t {
				firm := uint32(knownMarks)
				if actions.Collective(c).Registered() {
					firm = 0 // NCCL refuses a name on all ranks, which need not have come as far
				}
				for b := range t[c] {
					t[c][b].add(atomic.LoadUint32(&all[i].Marks[c][b]), firm)
				}
			}
		}
		for c := range t {
			for b := range t[c] {
				if m := &t[c][b]; m.Unasked {
					m.Set, m.Differ = m.Set&lateMarks, false
				}
			}
		}
	})
}

// firm: what ranks must agree on.
func (m *BucketMarks) add(word, firm uint32) {
	switch {
	case word&(markSeen|markKernels|markGIN) == 0:
		return
	case word&markSeen == 0:
		m.Unasked = true
	}
	// Algorithms of a newer NCCL are outside the action space: ranks need not agree about them.
	set := word & (firm | lateMarks)
	if firm == 0 {
		set = word &^ markSeen
	}
	if m.Seen == 0 {
		m.Set = set
	}
	m.Differ = m.Differ || (set^m.Set)&firm != 0
	m.Set &= set
	m.Seen++
}
