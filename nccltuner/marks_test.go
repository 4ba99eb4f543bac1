package nccltuner

import (
	"testing"
	"time"
)

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
