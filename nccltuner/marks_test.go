package nccltuner

import (
	"testing"
	"time"

	"dynamiccl/actions"
	"dynamiccl/state"
)

func TestMarks(t *testing.T) {
	r := heapRecord(t, 3)
	at := state.Bucket{Collective: actions.AllGather, Log2Bytes: 12}
	var table MarkTable
	check := func(name string, words [3]uint32, want BucketMarks) {
		t.Helper()
		for i, w := range words {
			r.ranks[i].Marks[at.Collective][at.Log2Bytes] = w
		}
		if err := r.Marks(&table); err != nil {
			t.Fatal(err)
		}
		if got := table.Of(at); got != want {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
		if other := table.Of(state.Bucket{Collective: actions.AllGather, Log2Bytes: 13}); other != (BucketMarks{}) {
			t.Errorf("%s: the next bucket says %+v", name, other)
		}
	}
	check("nobody", [3]uint32{}, BucketMarks{})
	check("one, none allowed", [3]uint32{0, markSeen, 0}, BucketMarks{Seen: 1})
	check("two of three", [3]uint32{0, markSeen | 6, markSeen | 6}, BucketMarks{Set: 6, Seen: 2})
	check("equal", [3]uint32{markSeen | 7, markSeen | 7, markSeen | 7}, BucketMarks{Set: 7, Seen: 3})
	check("differ", [3]uint32{markSeen | 7, markSeen | 5, markSeen | 7}, BucketMarks{Set: 5, Seen: 3, Differ: true})
	check("differ, first empty", [3]uint32{markSeen, markSeen | 5, markSeen}, BucketMarks{Seen: 3, Differ: true})
	check("newer algorithms", [3]uint32{markSeen | 1<<21 | 4, markSeen | 1<<23 | 4, markSeen | 4}, BucketMarks{Set: 4, Seen: 3})
	at.Collective = actions.AllGatherRegistered
	check("a name is refused on one as yet", [3]uint32{markSeen | 7, markSeen | 5, markSeen | 7}, BucketMarks{Set: 5, Seen: 3})
	check("names", [3]uint32{markSeen | 1<<23 | 1<<6, markSeen | 1<<23 | 1<<6, markSeen | 1<<23 | 1<<6}, BucketMarks{Set: 1<<23 | 1<<6, Seen: 3})
	check("not on registered memory on one", [3]uint32{markSeen | 7, 0, markSeen | 7}, BucketMarks{Set: 7, Seen: 2})
	at.Collective = actions.AllGather
	check("a device kernel on all", [3]uint32{markSeen | markDeviceLL | 9, markSeen | markDeviceLL | 9, markSeen | markDeviceLL | 9},
		BucketMarks{Set: markDeviceLL | 9, Seen: 3})
	check("on some as yet", [3]uint32{markSeen | markDeviceLL | 9, markSeen | 9, markSeen | markDeviceLL | 9}, BucketMarks{Set: 9, Seen: 3})
	kernels := func(all ...int) (word uint32) {
		for _, k := range all {
			word |= 1 << (26 + k)
		}
		return word | markSeen | 9
	}
	check("our kernels on all", [3]uint32{kernels(KernelOneShot, KernelBulk), kernels(KernelOneShot, KernelBulk), kernels(KernelOneShot, KernelBulk)},
		BucketMarks{Set: 1<<26 | 1<<28 | 9, Seen: 3})
	check("our kernels on some as yet", [3]uint32{kernels(KernelOneShot, KernelTwoShot), kernels(), kernels(KernelOneShot)}, BucketMarks{Set: 9, Seen: 3})
	check("one kernel on all, another on some", [3]uint32{kernels(KernelOneShot), kernels(KernelOneShot, KernelTwoShot), kernels(KernelOneShot)},
		BucketMarks{Set: 1<<26 | 9, Seen: 3})
	check("GIN on all", [3]uint32{markSeen | 1<<25 | 3, markSeen | 1<<25 | 3, markSeen | 1<<25 | 3}, BucketMarks{Set: 1<<25 | 3, Seen: 3})
	check("GIN on all but one", [3]uint32{markSeen | 1<<25 | 3, markSeen | 1<<25 | 3, markSeen | 3}, BucketMarks{Set: 3, Seen: 3})
	check("contexts on all but one", [3]uint32{markSeen | 5<<22 | 3, markSeen | 5<<22 | 3, markSeen | 4<<22 | 3}, BucketMarks{Set: 4<<22 | 3, Seen: 3})
	check("GIN of another kind on one", [3]uint32{markSeen | 1<<25 | 3, markSeen | 1<<24 | 3, markSeen | 1<<25 | 3}, BucketMarks{Set: 3, Seen: 3})
	unasked := func(set uint32) BucketMarks { return BucketMarks{Set: set, Seen: 3, Unasked: true} }
	check("our kernels, NCCL not asked", [3]uint32{5 << 26, 5 << 26, 5 << 26}, unasked(5<<26))
	check("one cannot run one of them", [3]uint32{5 << 26, 1 << 26, 5 << 26}, unasked(1<<26))
	check("over GIN, NCCL not asked", [3]uint32{1 << 25, 1 << 25, 1 << 25}, unasked(1<<25))
	check("NCCL asked on one", [3]uint32{1 << 26, kernels(KernelOneShot), 1 << 26}, unasked(1<<26))
	check("NCCL asked on two, which differ", [3]uint32{1 << 26, kernels(KernelOneShot), kernels(KernelOneShot) | 2}, unasked(1<<26))
	check("and on all", [3]uint32{kernels(KernelOneShot), kernels(KernelOneShot), kernels(KernelOneShot) | 2}, BucketMarks{Set: 1<<26 | 9, Seen: 3, Differ: true})
	check("one has not called", [3]uint32{1 << 26, 1 << 26, 0}, BucketMarks{Set: 1 << 26, Seen: 2, Unasked: true})
	check("bits that nobody knows", [3]uint32{markSeen | 1<<29 | 9, markSeen | 9, markSeen | 9}, BucketMarks{Set: 9, Seen: 3})
	check("asked and not called", [3]uint32{markDeviceLL, markDeviceLL, markDeviceLL}, BucketMarks{})
	check("not seen", [3]uint32{7, 7, 7}, BucketMarks{})
	if got := table.Of(state.Bucket{Collective: 5}); got != (BucketMarks{}) {
		t.Errorf("unknown collective: %+v", got)
	}
	if got := table.Of(state.Bucket{Log2Bytes: 48}); got != (BucketMarks{}) {
		t.Errorf("unknown bucket: %+v", got)
	}
}

// Every mark of every rank is seen to move, once.
func TestNewMarks(t *testing.T) {
	r := heapRecord(t, 3)
	moved := func() bool {
		t.Helper()
		m, err := r.NewMarks()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	if !moved() || moved() {
		t.Error("the first look finds something, the second nothing")
	}
	for i := range r.ranks {
		for c := range r.ranks[i].Marks {
			for b := range r.ranks[i].Marks[c] {
				r.ranks[i].Marks[c][b] ^= 1 << ((b + c + i) % 32)
				if !moved() {
					t.Fatalf("rank %d, collective %d, size 2^%d: not seen", i, c, b)
				}
				if moved() {
					t.Fatalf("rank %d, collective %d, size 2^%d: seen twice", i, c, b)
				}
			}
		}
	}
	r.ranks[2].Calls++
	if moved() {
		t.Error("a call was made, and marks are said to have moved")
	}
	if n := testing.AllocsPerRun(10, func() { moved() }); n != 0 {
		t.Errorf("%v allocations a look", n)
	}
}

// With what reading the table costs, which a look spares.
func BenchmarkNewMarks(b *testing.B) {
	r := heapRecord(b, 8)
	var table MarkTable
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.NewMarks(); err != nil {
			b.Fatal(err)
		}
	}
	perLook, began := float64(b.Elapsed())/float64(b.N), time.Now()
	const tables = 1000
	for range tables {
		if err := r.Marks(&table); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(time.Since(began))/tables/perLook, "tables/look")
}
