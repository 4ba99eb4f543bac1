package nccltuner

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// mappedRing gives a ring in a real file with the shipped number of cells.
func mappedRing(b *testing.B) *Ring {
	d := openTestDir(b)
	p := Process{3, 4}
	putFile(b, d, ringName(p), newRingBytes(p, RingCells))
	r, err := d.OpenRing(p)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = r.Close() })
	return r
}

// One producer and the daemon at the same time, through a file, as fast as both can.
func BenchmarkDrainConcurrent(b *testing.B) {
	r := mappedRing(b)
	var done atomic.Bool
	var producer sync.WaitGroup
	producer.Go(func() {
		s := goodSample()
		for !done.Load() {
			if !put(r.abi, r.cells, &s) {
				runtime.Gosched() // full
			}
		}
	})
	into := make([]Sample, 4096)
	b.ReportAllocs()
	b.ResetTimer()
	for total := 0; total < b.N; {
		n, err := r.Drain(into[:min(len(into), b.N-total)])
		if err != nil {
			b.Fatal(err)
		}
		if total += n; n < len(into) {
			time.Sleep(time.Millisecond) // as the daemon polls: reading right behind the producer fights for cache lines
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "samples/s")
	done.Store(true)
	producer.Wait()
}

// The daemon's part alone: the ring is filled while the clock stands.
func BenchmarkDrain(b *testing.B) {
	r := mappedRing(b)
	s := goodSample()
	into := make([]Sample, 4096)
	b.ReportAllocs()
	b.SetBytes(cellSize)
	for total := 0; total < b.N; {
		b.StopTimer()
		for range RingCells {
			put(r.abi, r.cells, &s)
		}
		b.StartTimer()
		for range RingCells / len(into) {
			n, err := r.Drain(into)
			if err != nil || n != len(into) {
				b.Fatal(n, err)
			}
			total += n
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "samples/s")
}
