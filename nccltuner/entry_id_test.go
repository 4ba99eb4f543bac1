package nccltuner

import (
	"testing"
)

// A daemon that takes a record over numbers its entries after every id that a rank may have seen.
func TestLastEntryID(t *testing.T) {
	r := heapRecord(t, 2)
	if last, err := r.LastEntryID(); err != nil || last != 0 {
		t.Errorf("a new record: %d, %v", last, err)
	}
	for _, at := range []struct{ plan, entry int }{{0, 1}, {NumPlans - 1, NumEntries - 1}, {3, 0}} {
		r := heapRecord(t, 2)
		r.abi.Plans[1].Entries[5].ID = 6
		r.abi.Plans[at.plan].Entries[at.entry].ID = 7 // in a buffer that is not the newest and beyond numEntries
		if last, err := r.LastEntryID(); err != nil || last != 7 {
			t.Errorf("id 7 in plan %d, entry %d: %d, %v", at.plan, at.entry, last, err)
		}
	}
}
