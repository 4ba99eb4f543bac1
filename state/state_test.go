package state

import (
	"math"
	"testing"

	"dynamiccl/actions"
)

// Every size has one bucket, zero has none, and what is larger than all buckets shares the last.
func TestSizeBucket(t *testing.T) {
	if i, ok := SizeBucket(0); ok || i != 0 {
		t.Errorf("zero bytes: bucket %d, %v", i, ok)
	}
	for log2 := range 64 {
		want := min(log2, NumBuckets-1)
		low := uint64(1) << log2
		for _, n := range []uint64{low, low + (low-1)/2, low + (low - 1)} {
			if i, ok := SizeBucket(n); !ok || i != want {
				t.Errorf("%d bytes: bucket %d, %v; want %d", n, i, ok, want)
			}
		}
	}
	if i, ok := SizeBucket(math.MaxUint64); !ok || i != NumBuckets-1 {
		t.Errorf("2^64-1 bytes: bucket %d, %v", i, ok)
	}
}

// Collectives of a newer NCCL have no bucket.
func TestBucketOf(t *testing.T) {
	for c := range 256 {
		b, ok := BucketOf(actions.Collective(c), 4096)
		if want := c < int(actions.NumCollectives); ok != want || ok && (b != Bucket{actions.Collective(c), 12}) {
			t.Errorf("collective %d: %v, %v", c, b, ok)
		}
	}
	if _, ok := BucketOf(actions.AllReduce, 0); ok {
		t.Error("zero bytes have a bucket")
	}
}

func TestFormatBytes(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 B", 1: "1 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 64 << 10: "64 KiB", 1 << 47: "128 TiB",
		math.MaxUint64: "16 EiB"} {
		if got := FormatBytes(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	if got := (Bucket{actions.AllGather, 22}).String(); got != "AllGather 4 MiB" {
		t.Errorf("bucket %q", got)
	}
	if got := (Shape{Ranks: 8, Nodes: 2}).String(); got != "8 ranks, 2 nodes" {
		t.Errorf("shape %q", got)
	}
}
