package nccltuner

import (
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
)

func TestTakeover(t *testing.T) {
	r := heapRecord(t, 2)
	if last, err := r.LastEntryID(); err != nil || last != 0 {
		t.Errorf("nothing published: last id %d, %v; want 0", last, err)
	}
	if bases, err := r.NewestBases(); err != nil || len(bases) != 0 {
		t.Errorf("nothing published: bases %v, %v; want none", bases, err)
	}
	small := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 10}
	large := state.Bucket{Collective: actions.AllGather, Log2Bytes: 28}
	a := actions.Action{Path: actions.PathCollective, Algorithm: actions.Tree, Protocol: actions.LL128, Channels: 16}
	p := newPublisher(t, r)
	for _, spec := range []PlanSpec{
		{SampleEvery: 1, Entries: []EntrySpec{{Bucket: small, ID: 77, Base: 0, Trials: []uint32{a.Word()}}}},
		{SampleEvery: 4, Entries: []EntrySpec{{Bucket: small, ID: 5, Base: a.Word()}, {Bucket: large, ID: 6, Base: 0}}},
	} {
		if _, err := p.Publish(&spec); err != nil {
			t.Fatal(err)
		}
	}
	if last, err := r.LastEntryID(); err != nil || last != 77 {
		t.Errorf("last id %d, %v; want 77, of the older plan", last, err)
	}
	bases, err := r.NewestBases()
	if err != nil || len(bases) != 1 || bases[small] != a {
		t.Errorf("bases %v, %v; want %v for %v alone", bases, err, a, small)
	}
	// In a block of the step guard: what was chosen is in force for graphs, or what is vetoed for calls alone.
	for defaults, want := range map[uint32]int{PlanDefaultCalls: 1, PlanDefaultGraphs: 0} {
		if _, err := p.Publish(&PlanSpec{Defaults: defaults, Entries: []EntrySpec{{Bucket: small, ID: 8, Base: a.Word()}}}); err != nil {
			t.Fatal(err)
		}
		if bases, err := r.NewestBases(); err != nil || len(bases) != want {
			t.Errorf("defaults %d: bases %v, %v; want %d", defaults, bases, err, want)
		}
	}
	r.abi.Plans[int(r.abi.Newest&255)-1].Defaults = 0
	r.abi.Plans[int(r.abi.Newest&255)-1].Entries[1].Base ^= 1 << 20 // a word that the checksum knows otherwise
	if bases, err := r.NewestBases(); err != nil || len(bases) != 0 {
		t.Errorf("a damaged plan gave %v, %v; want none", bases, err)
	}
}

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
