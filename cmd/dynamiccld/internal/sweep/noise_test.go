package sweep

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// What a series was made of is found again: spread with and without its tail, and memory.
func TestNoiseOf(t *testing.T) {
	const calls, sigma = 20000, 0.05
	for _, c := range []struct {
		name         string
		memory, tail float64 // of the call before; share of calls that take three times as long
	}{{"normal", 0, 0}, {"a tail", 0, 0.02}, {"memory", 0.6, 0}, {"a tail and memory", 0.6, 0.02}} {
		rng := rand.New(rand.NewPCG(1, 2))
		us, before := make([]float64, calls), 0.0
		for i := range us {
			before = c.memory*before + math.Sqrt(1-c.memory*c.memory)*sigma*rng.NormFloat64()
			us[i] = 10 * math.Exp(before)
			if rng.Float64() < c.tail {
				us[i] *= 3
			}
		}
		n := noiseOf(us)
		if math.Abs(n.MedianUs/10-1) > 0.005 || math.Abs(n.LogSDMAD/sigma-1) > 0.1 || math.Abs(n.ShareOver2-c.tail) > 0.005 || n.ShareOver15 < n.ShareOver2 {
			t.Errorf("%s: %+v", c.name, n)
		}
		if want := math.Hypot(sigma, math.Log(3)*math.Sqrt(c.tail*(1-c.tail))); math.Abs(n.LogSD/want-1) > 0.15 {
			t.Errorf("%s: standard deviation %.4f, want %.4f", c.name, n.LogSD, want)
		}
		if (c.tail > 0) != (n.WorstOverMedian > 2) {
			t.Errorf("%s: worst %.2f", c.name, n.WorstOverMedian)
		}
		if math.Abs(n.Lag1-c.memory) > 0.02+10*c.tail*c.memory {
			t.Errorf("%s: lag 1 %.3f, want %.3f", c.name, n.Lag1, c.memory)
		}
	}
	if n := noiseOf([]float64{7, 7}); n.MedianUs != 7 || n.LogSD != 0 || n.Lag1 != 0 {
		t.Errorf("no noise: %+v", n)
	}
}

func TestCallNoise(t *testing.T) {
	n := callNoise([][]float64{{1, 2, 3, 9}, {2, 2, 6}})
	if n.Fastest.MedianUs != 2 || n.Slowest.MedianUs != 2 || n.Slowest.WorstOverMedian != 3 || n.RankSpreadMedian != 1 {
		t.Errorf("%+v", n)
	}
}

// Single calls of every rank are in the journal, with the noise that the stand-in was told to make.
func TestLiveSingleCalls(t *testing.T) {
	for _, how := range []string{"graph", "stream"} {
		const calls, sigma = 600, 0.05
		m := newMachine(t, "h200x4-nvlink-quiet", "FAKEGPU_OPTIONS=--noise 0.05 --seed 3")
		m.must("--ranks", "4", "--collectives", "AllReduce", "--sizes", "64K", "--choices", "ring/ll/8", "--calls", how, "--single-calls", "600", "--out", "n.csv")
		points, _, err := readJournal(m.path("n.points.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		measured := 0
		for _, p := range points {
			if p.Outcome != OutcomeOK {
				continue
			}
			measured++
			if len(p.CallUs) != 4 || len(p.CallUs[0]) != calls || p.Calls != 1 || p.Replays != calls || p.Noise == nil {
				t.Fatalf("%s: %d ranks, %d replays of %d calls, %+v", how, len(p.CallUs), p.Replays, p.Calls, p.Noise)
			}
			// 600 draws of 5%: the spread is within 20% with probability 1 - 1e-6.
			if n := p.Noise.Slowest; math.Abs(n.LogSDMAD/sigma-1) > 0.25 || math.Abs(n.MedianUs/p.MedianUs-1) > 0.01 {
				t.Errorf("%s %s: %+v, median %.2f", how, p.Action, n, p.MedianUs)
			}
		}
		if measured != 3 { // the default before and after
			t.Errorf("%s: %d points", how, measured)
		}
		if table := readTable(t, m.path("n.csv")); !strings.HasSuffix(table.Condition, "-single-calls") && table.Condition != "single-calls" {
			t.Errorf("condition %q", table.Condition)
		}
		if said, code := m.sweep("--ranks", "4", "--collectives", "AllReduce", "--sizes", "64K", "--choices", "ring/ll/8", "--calls", how, "--out", "n.csv",
			"--condition", readTable(t, m.path("n.csv")).Condition); code == 0 {
			t.Errorf("%s: other calls went into the same table:\n%s", how, said)
		}
	}
}
