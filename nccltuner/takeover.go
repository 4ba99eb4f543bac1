package nccltuner

import (
	"sync/atomic"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// LastEntryID is the largest entry id that any plan buffer of the record holds. A daemon that takes the record over must
// number its entries after it: an id that ranks have already seen would continue their count of its trials.
func (r *Record) LastEntryID() (uint32, error) {
	last := uint32(0)
	err := r.memory.guard(func() {
		for i := range r.abi.Plans {
			for j := range r.abi.Plans[i].Entries {
				last = max(last, r.abi.Plans[i].Entries[j].ID)
			}
		}
	})
	return last, err
}

// NewestBases is what the newest plan has its buckets settle on, so that a daemon that takes the record over can go on
// from there. It is empty when nothing was published, when the plan fails its check, and when it only compares with the default what is vetoed.
func (r *Record) NewestBases() (map[state.Bucket]actions.Action, error) {
	bases := map[state.Bucket]actions.Action{}
	err := r.memory.guard(func() {
		slot := atomic.LoadUint64(&r.abi.Newest) & 255
		if slot == 0 || slot > NumPlans {
			return
		}
		plan := r.abi.Plans[slot-1] // a copy: this daemon is the only writer, and writes no buffer that is the newest
		vetoed := plan.Defaults&PlanDefaultGraphs != 0
		if planChecksum(&plan) != plan.Checksum || vetoed {
			return
		}
		for c := range plan.Index {
			for log2, i := range plan.Index[c] {
				if i == 0 || i >= NumEntries {
					continue
				}
				if a, err := actions.FromWord(plan.Entries[i].Base); err == nil && a != actions.Default {
					bases[state.Bucket{Collective: actions.Collective(c), Log2Bytes: uint8(log2)}] = a
				}
			}
		}
	})
	return bases, err
}
