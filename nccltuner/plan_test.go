package nccltuner

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
)

func TestEncodePlan(t *testing.T) {
	spec := PlanSpec{SampleEvery: 8, CloseEpochs: 5, Defaults: PlanDefaultGraphs, Entries: []EntrySpec{
		{Bucket: state.Bucket{Collective: actions.AllReduce, Log2Bytes: 47}, ID: 9, Base: 0x11},
		{Bucket: state.Bucket{Collective: actions.Broadcast, Log2Bytes: 0}, ID: 4, Base: 0, Skip: 9, Trials: []uint32{0x111, 0, 0x180211}},
	}}
	var p ABIPlan
	for i := range p.words() {
		p.words()[i] = ^uint64(0) // what stood in the staging plan must not shine through
	}
	if err := encodePlan(&p, &spec); err != nil {
		t.Fatal(err)
	}
	want := ABIPlan{NumEntries: 3, SampleEvery: 8, CloseEpochs: 5, Defaults: PlanDefaultGraphs}
	want.Index[4][47], want.Index[0][0] = 1, 2
	want.Entries[1] = ABIEntry{ID: 9, Base: 0x11}
	want.Entries[2] = ABIEntry{ID: 4, NumTrials: 3, Skip: 9, Trials: [12]uint32{0x111, 0, 0x180211}}
	if p != want {
		t.Errorf("got %+v, want %+v", p, want)
	}
}

// entries gives n entries of different buckets, which try something.
func entries(n int) []EntrySpec {
	all := settled(0, n, 0x11)
	for i := range all {
		all[i].Trials = []uint32{0x11}
	}
	return all
}

// settled gives entries of different buckets that try nothing.
func settled(from, to int, base uint32) []EntrySpec {
	var all []EntrySpec
	for i := from; i < to; i++ {
		b := state.Bucket{Collective: actions.Collective(i / NumBuckets), Log2Bytes: uint8(i % NumBuckets)}
		all = append(all, EntrySpec{Bucket: b, ID: uint32(i), Base: base})
	}
	return all
}

// Buckets that try nothing and have the same base have one entry between them, of their newest id: all buckets find room.
func TestPlanShares(t *testing.T) {
	spec := PlanSpec{Entries: slices.Concat(settled(0, 200, 0x11), settled(200, 400, 0x111), entries(401)[400:])}
	var p ABIPlan
	if err := encodePlan(&p, &spec); err != nil {
		t.Fatal(err)
	}
	want := []ABIEntry{1: {ID: 199, Base: 0x11}, 2: {ID: 399, Base: 0x111}, 3: {ID: 400, Base: 0x11, NumTrials: 1, Trials: [12]uint32{0x11}}}
	if p.NumEntries != 4 || !slices.Equal(p.Entries[:4], want) {
		t.Errorf("%d entries %+v", p.NumEntries, p.Entries[:4])
	}
	for i := range 401 {
		if at := p.Index[i/NumBuckets][i%NumBuckets]; at != uint8(1+i/200) {
			t.Fatalf("bucket %d has entry %d", i, at)
		}
	}
}

func TestEncodePlanRefuses(t *testing.T) {
	one := func(e EntrySpec) PlanSpec { return PlanSpec{Entries: []EntrySpec{e}} }
	bucket := state.Bucket{Collective: actions.Reduce, Log2Bytes: 3}
	for _, c := range []struct {
		spec PlanSpec
		want string // "": good
	}{
		{PlanSpec{}, ""},
		{PlanSpec{Entries: entries(63)}, ""},
		{PlanSpec{Entries: entries(64)}, "64 buckets want more entries than the 63 that fit"},
		{PlanSpec{Entries: slices.Concat(entries(62), settled(63, 100, 0x11), settled(101, 200, 0x11))}, ""},
		{one(EntrySpec{Bucket: bucket, Trials: make([]uint32, 12)}), ""},
		{one(EntrySpec{Bucket: bucket, Trials: make([]uint32, 13)}), "13 trials of Reduce 8 B, at most 12 fit"},
		{one(EntrySpec{Bucket: bucket, Skip: MaxSkip}), ""},
		{one(EntrySpec{Bucket: bucket, Skip: MaxSkip + 1}), "trials of Reduce 8 B behind 129 calls, at most 128"},
		{PlanSpec{SampleEvery: 6}, "sampling every 6 epochs"},
		{PlanSpec{SampleEvery: 1 << 31}, ""},
		{one(EntrySpec{Bucket: state.Bucket{Collective: NumCollectives}}), fmt.Sprintf("collective %d", NumCollectives)},
		{one(EntrySpec{Bucket: state.Bucket{Log2Bytes: 48}}), "bucket 48"},
		{PlanSpec{Entries: slices.Repeat([]EntrySpec{{Bucket: bucket}}, 2)}, "two entries of Reduce 8 B"},
		{one(EntrySpec{Bucket: bucket, Base: 0x5}), "action word 0x5"},
		{one(EntrySpec{Bucket: bucket, Trials: []uint32{0x11, 0x1011}}), "action word 0x1011"},
	} {
		var p ABIPlan
		err := encodePlan(&p, &c.spec)
		if c.want == "" && err != nil {
			t.Errorf("%+v: %v", c.spec, err)
		}
		if c.want != "" && (!errors.Is(err, ErrBadPlan) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}
