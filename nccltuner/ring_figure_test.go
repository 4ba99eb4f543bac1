package nccltuner

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"
)

// samplesWanted is what the design asks of one ring into the daemon, a second.
const samplesWanted = 5e6

// BenchmarkRingFigure prints the figure of the sample path as one JSON line for `make bench`: a process with the shipped
// producer and the daemon's reader at once, through a file in shared memory, decoding and checking every sample. It runs
// a fixed number of samples whatever -benchtime says.
func BenchmarkRingFigure(b *testing.B) {
	const samples = 50_000_000
	sources, err := filepath.Glob("plugin/*.c")
	if err != nil {
		b.Fatal(err)
	}
	program := filepath.Join(b.TempDir(), "flood")
	build := exec.Command("gcc", append([]string{"-std=gnu11", "-O2", "-D_GNU_SOURCE", "-I.", "-o", program, "testdata/flood.c", "-pthread", "-ldl"}, sources...)...)
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("gcc: %v\n%s", err, out)
	}
	for b.Loop() {
		d := openTestDir(b)
		flood := exec.Command(program, strconv.Itoa(samples))
		flood.Env = append(os.Environ(), DirVariable+"="+d.Path())
		in, err1 := flood.StdinPipe()
		out, err2 := flood.StdoutPipe()
		if err1 != nil || err2 != nil {
			b.Fatal(err1, err2)
		}
		if err := flood.Start(); err != nil {
			b.Fatal(err)
		}
		var p Process
		if _, err := fmt.Fscan(bufio.NewReader(out), &p.PID, &p.StartTime); err != nil {
			b.Fatal(err)
		}
		r, err := d.OpenRing(p)
		if err != nil {
			b.Fatal(err)
		}
		into := make([]Sample, 4096)
		began := time.Now()
		if _, err := in.Write([]byte("\n")); err != nil {
			b.Fatal(err)
		}
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
		_ = in.Close() // the producer waits for this, its ring must not go before it is read
		if err := flood.Wait(); err != nil {
			b.Fatal(err)
		}
		line, err := json.Marshal(map[string]any{"figure": "samples through one ring", "samples": samples, "samples_per_second": rate,
			"target": samplesWanted, "cpus": runtime.NumCPU()})
		if err != nil {
			b.Fatal(err)
		}
		fmt.Println(string(line))
		if rate < samplesWanted {
			b.Errorf("%.1f million samples a second, want %.0f", rate/1e6, samplesWanted/1e6)
		}
		if err := r.Close(); err != nil {
			b.Error(err)
		}
	}
}
