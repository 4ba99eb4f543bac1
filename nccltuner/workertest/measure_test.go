package workertest

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"
)

// resolutionUs is what single precision milliseconds of an event and the reply's digits leave of a time.
const resolutionUs = 0.001

func near(t *testing.T, what string, got usList, want float64) {
	t.Helper()
	if len(got) == 0 {
		t.Errorf("%s: no times", what)
	}
	for i, us := range got {
		if math.Abs(us-want) > resolutionUs {
			t.Errorf("%s: replay %d takes %.4f us, the table says %.4f", what, i, us, want)
			return
		}
	}
}

func allRight(t *testing.T, what string, replies []reply) {
	t.Helper()
	for rank, r := range replies {
		if r.Wrong == nil || *r.Wrong != 0 {
			t.Errorf("%s: rank %d: reply %+v, want 0 wrong elements", what, rank, r)
		}
	}
}

// Every collective is right and takes what the table says, in graphs and on the stream; ranks replay equally often.
func TestMeasuresWhatTheTableSays(t *testing.T) {
	for _, ranks := range []int{2, 4} {
		g := startGroup(t, ranks, sameEnv("FAKEGPU_TABLE="+writeTable(t, ranks, 1)))
		for rank, r := range g.init() {
			want := reply{Ready: true, NCCL: 23007, GPU: "no GPU, stand-in for an H200", UUID: fmt.Sprintf("GPU-fafafafa-fafa-fafa-fafa-fafafafafa%02x", rank),
				PCIBus: fmt.Sprintf("0000:%02x:00.0", 16+rank), DriverVersion: 13000, CommHash: r.CommHash}
			if fmt.Sprint(r) != fmt.Sprint(want) || len(r.CommHash) != 16 {
				t.Errorf("rank %d: init says %+v, want %+v", rank, r, want)
			}
		}
		for _, collective := range append([]string{"AllToAll"}, tableCollectives...) {
			for _, bytes := range tableSizes {
				what := fmt.Sprintf("%d ranks, %s of %d bytes", ranks, collective, bytes)
				allRight(t, what, g.ask(callLine(collective, bytes, 3)))
				once := 5 * defaultUs(collective, bytes)
				replies := g.ask(measureLine(collective, bytes, "host", 5, 7, 7, 0, 0))
				allRight(t, what, replies)
				for _, r := range replies { // the stand-in's GPU runs by a clock of its own: what is enqueued takes the host its own time
					if len(r.Us) != 7 || slices.Min(r.Us) <= 0 || slices.Max(r.Us) > 1e5 || r.Grid != 0 {
						t.Errorf("%s, host: %v us, grid %d", what, r.Us, r.Grid)
					}
				}
				for _, mode := range []string{"graph", "stream", "free"} {
					replies := g.ask(measureLine(collective, bytes, mode, 5, 20, 3, 2*once, 7.5*once))
					allRight(t, what, replies)
					for _, r := range replies {
						near(t, what+" as "+mode, r.Us, defaultUs(collective, bytes))
						if len(r.Us) != 7 || (r.Grid > 0) != (mode == "graph") || (r.CaptureUs > 0) != (mode == "graph") {
							t.Errorf("%s as %s: %d replays, grid %d, captured in %g us", what, mode, len(r.Us), r.Grid, r.CaptureUs)
						}
					}
				}
			}
		}
		g.bye()
	}
}

// The budget bounds replays from above, min_replays from below, replays in any case.
func TestReplays(t *testing.T) {
	g := startGroup(t, 2, sameEnv("FAKEGPU_TABLE="+writeTable(t, 2, 1)))
	g.init()
	once := 4 * defaultUs("AllReduce", 1024)
	for _, c := range []struct {
		replays, least int
		warm, budget   float64
		want           int
	}{
		{50, 3, 0, 10.5 * once, 10}, {50, 3, 2000, once, 3}, {5, 3, 2000, 1e9, 5}, {4, 4, 0, 0, 4}, {1, 1, 0, 0, 1},
	} {
		for _, r := range g.ask(measureLine("AllReduce", 1024, "graph", 4, c.replays, c.least, c.warm, c.budget)) {
			near(t, "AllReduce", r.Us, defaultUs("AllReduce", 1024))
			if len(r.Us) != c.want {
				t.Errorf("%+v: %d replays", c, len(r.Us))
			}
		}
	}
}

// Sizes that do not divide evenly, and what a rank's share is rounded to.
func TestOddSizes(t *testing.T) {
	g := startGroup(t, 3, sameEnv("FAKEGPU_TABLE="+writeTable(t, 3, 1)))
	g.init()
	for _, collective := range append([]string{"AllToAll"}, tableCollectives...) {
		for _, bytes := range []int{48, 1000, 65537, 1<<20 + 2, 8 << 20} {
			what := fmt.Sprintf("%s of %d bytes", collective, bytes)
			allRight(t, what, g.ask(callLine(collective, bytes, 1)))
			allRight(t, what, g.ask(measureLine(collective, bytes, "graph", 2, 2, 2, 0, 0)))
		}
	}
	allRight(t, "AllReduce of one element", g.ask(callLine("AllReduce", 2, 2)))
}

// Noise scatters replays around the table, on all ranks alike and again with the same seed.
func TestNoise(t *testing.T) {
	series := func(seed string) usList {
		g := startGroup(t, 2, sameEnv("FAKEGPU_TABLE="+writeTable(t, 2, 1), "FAKEGPU_OPTIONS=--noise 0.05 --seed "+seed))
		g.init()
		replies := g.ask(measureLine("AllReduce", 65536, "graph", 1, 400, 400, 0, 0))
		g.bye()
		if !slices.Equal(replies[0].Us, replies[1].Us) {
			t.Errorf("ranks of one collective take different times")
		}
		return replies[0].Us
	}
	first, again, other := series("1"), series("1"), series("2")
	if !slices.Equal(first, again) || slices.Equal(first, other) {
		t.Errorf("equal seeds give equal series: %v, different ones: %v", slices.Equal(first, again), slices.Equal(first, other))
	}
	sorted := slices.Sorted(slices.Values(first))
	want := defaultUs("AllReduce", 65536)
	// 400 draws of 5%: the median is within 1.5% with probability 1 - 1e-6, the extremes beyond 5%.
	if math.Abs(sorted[200]/want-1) > 0.015 || sorted[0] > 0.95*want || sorted[399] < 1.05*want {
		t.Errorf("median %.2f, from %.2f to %.2f; the table says %.2f", sorted[200], sorted[0], sorted[399], want)
	}
}

// An NCCL without ncclAlltoAll does it by sends and receives.
func TestAllToAllBySendsAndReceives(t *testing.T) {
	g := startGroup(t, 4, sameEnv("FAKEGPU_TABLE="+writeTable(t, 4, 1)), "--nccl", filepath.Join(build, "libnccl-2.27.so"))
	g.init()
	for _, bytes := range tableSizes {
		allRight(t, "AllToAll", g.ask(callLine("AllToAll", bytes, 2)))
		for _, r := range g.ask(measureLine("AllToAll", bytes, "graph", 3, 3, 3, 0, 0)) {
			near(t, "AllToAll", r.Us, defaultUs("AllToAll", bytes))
		}
	}
	g.bye()
}

// A load slows collectives while they are timed, and only then.
func TestLoad(t *testing.T) {
	g := startGroup(t, 2, sameEnv("FAKEGPU_TABLE="+writeTable(t, 2, 1), "FAKEGPU_LOAD_FACTOR=1.5"))
	g.init()
	for _, c := range []struct {
		kind   string
		factor float64
	}{{"compute", 1.5}, {"copy", 1.5}, {"none", 1}, {"compute", 1.5}} {
		for rank, r := range g.ask(fmt.Sprintf(`{"do":"load","kind":"%s"}`, c.kind)) {
			if !r.OK {
				t.Errorf("rank %d: load %s: %+v", rank, c.kind, r)
			}
		}
		replies := g.ask(measureLine("AllReduce", 65536, "graph", 5, 21, 21, 2000, 1e6))
		allRight(t, c.kind, replies)
		for _, r := range replies {
			near(t, "load "+c.kind, r.Us, c.factor*defaultUs("AllReduce", 65536))
		}
	}
	g.bye()
	alone := startGroup(t, 2, sameEnv("FAKEGPU_TABLE="+writeTable(t, 2, 1), "FAKEGPU_GPUS=1"), "--device", "0")
	alone.init()
	for kind, want := range map[string]string{"copy": "load copy: want two visible GPUs: look at CUDA_VISIBLE_DEVICES", "gremlins": `kind "gremlins": want none, compute or copy`} {
		if r := alone[0].ask(fmt.Sprintf(`{"do":"load","kind":"%s"}`, kind)); r.Error != want {
			t.Errorf("load %s: %+v", kind, r)
		}
	}
	allRight(t, "after refusals", alone.ask(callLine("AllReduce", 1024, 2)))
}
