package nccltuner

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
