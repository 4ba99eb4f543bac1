package nccltuner

import (
	"encoding/json"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
)

// samplesWanted is what the design asks of one ring into the daemon, a second.
const samplesWanted = 5e6

// BenchmarkRingFigure prints the figure of the sample path as one JSON line for `make bench`: one producer and the
// daemon's reader at once, through a file in shared memory, decoding and checking every sample. It runs a fixed number of
// samples whatever -benchtime says.
func BenchmarkRingFigure(b *testing.B) {
	const samples = 50_000_000
	for b.Loop() {
		r := mappedRing(b)
		var producer sync.WaitGroup
		producer.Go(func() {
			s := goodSample()
			for i := 0; i < samples; {
				if put(r.abi, r.cells, &s) {
					i++
				} else {
					runtime.Gosched() // full
				}
			}
		})
		into := make([]Sample, 4096)
		began := time.Now()
		for total := 0; total < samples; {
			n, err := r.Drain(into)
			if err != nil {
				b.Fatal(err)
			}
			if total += n; n < len(into) {
				time.Sleep(2 * time.Millisecond) // the daemon polls too; reading right behind the producer fights for cache lines
			}
		}
		rate := samples / time.Since(began).Seconds()
		producer.Wait()
		line, err := json.Marshal(map[string]any{"figure": "samples through one ring", "samples": samples, "samples_per_second": rate,
			"target": samplesWanted, "cpus": runtime.NumCPU()})
		if err != nil {
			b.Fatal(err)
		}
		fmt.Println(string(line))
		if rate < samplesWanted {
			b.Errorf("%.1f million samples a second, want %.0f", rate/1e6, samplesWanted/1e6)
		}
	}
}
