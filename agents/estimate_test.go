package agents

import (
	"flag"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// rapidCheck runs a property on a fixed seed, or that of TEST_SEED.
func rapidCheck(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	seed := "20250611"
	if s := os.Getenv("TEST_SEED"); s != "" {
		seed = s
	}
	if _, err := strconv.ParseUint(seed, 10, 64); err != nil {
		t.Fatalf("TEST_SEED %q: %v", seed, err)
	}
	if err := flag.Set("rapid.seed", seed); err != nil {
		t.Fatal(err)
	}
	t.Logf("seed %s (TEST_SEED)", seed)
	rapid.Check(t, property)
}

func seen(a actions.Action, ns float64) state.Observation {
	return state.Observation{Action: a, Bytes: 1024, SignalNs: state.Ns(ns), CounterNs: state.Ns(ns)}
}

// Every estimate against a plain computation over the whole list.
func TestSamplesOracle(t *testing.T) {
	rapidCheck(t, func(t *rapid.T) {
		costs := rapid.SliceOfN(rapid.Float64Range(1, 1e9), 1, 100).Draw(t, "costs")
		var s samples
		for _, c := range costs {
			s.add(c)
		}
		mean, meanLog, variance := 0.0, 0.0, 0.0
		for _, c := range costs {
			mean += c / float64(len(costs))
			meanLog += math.Log(c) / float64(len(costs))
		}
		for _, c := range costs {
			variance += (math.Log(c) - meanLog) * (math.Log(c) - meanLog)
		}
		variance /= math.Max(1, float64(len(costs)-1))
		logs := make([]float64, 0, window)
		for _, c := range costs[max(0, len(costs)-window):] {
			logs = append(logs, math.Log(c))
		}
		cut := func(xs []float64) float64 {
			xs = slices.Sorted(slices.Values(xs))
			k := len(xs) / 4
			if len(xs) == 3 {
				k = 1
			}
			sum := 0.0
			for _, x := range xs[k : len(xs)-k] {
				sum += x
			}
			return sum / float64(len(xs)-2*k)
		}
		middle := cut(logs)
		dev := make([]float64, len(logs))
		for i, l := range logs {
			dev[i] = math.Abs(l - middle)
		}
		slices.Sort(dev)
		mad := (dev[(len(dev)-1)/2] + dev[len(dev)/2]) / 2
		latest := slices.Sorted(slices.Values(logs[max(0, len(logs)-5):]))
		for _, c := range []struct {
			what            string
			got, want, unit float64
		}{
			{"mean", s.meanNs, mean, mean},
			{"variance", s.varLog(), variance, 1 + variance},
			{"interquartile mean", s.log(), middle, 1},
			{"deviation", s.spread(), madSigma * mad, 1},
			{"latest", s.recent(5), latest[(len(latest)-1)/2], 1},
			{"settled", s.settled(), cut(logs[:len(logs)-min(lateDetection, len(costs)/2)]), 1},
		} {
			if math.Abs(c.got-c.want) > 1e-5*c.unit {
				t.Fatalf("%s of %d costs: %g, want %g", c.what, len(costs), c.got, c.want)
			}
		}
	})
}

func TestOneDelayedCallDecidesNothing(t *testing.T) {
	var s samples
	for _, c := range []float64{100, 101, 99} {
		s.add(c)
	}
	before := s.log()
	s.add(1e6)
	if d := s.log() - before; math.Abs(d) > 0.02 {
		t.Errorf("one delayed call of four moved the estimate by %f", d)
	}
}

func TestUnknownSamplesAreDropped(t *testing.T) {
	set := fullSet()
	a := newArms(set)
	for _, o := range []state.Observation{
		seen(set[1], 0), seen(set[1], -5), {Action: set[1], SignalNs: math.MinInt64}, {Action: set[1], SignalNs: math.MaxInt64},
		seen(actions.Action{Path: actions.PathCollective, Algorithm: actions.PAT}, 5), seen(actions.Action{Path: 99}, 5),
	} {
		if _, ok := a.add(&o); ok {
			t.Errorf("%+v was taken in", o)
		}
	}
	if a.calls != 0 {
		t.Errorf("%d calls", a.calls)
	}
}

func TestSigmaIsPooled(t *testing.T) {
	a := newArms(fullSet())
	if s := a.sigma(); math.Abs(s-priorSigma) > 1e-9 {
		t.Errorf("%f before any sample", s)
	}
	for i := range 400 { // ±20% in turn, on two actions of different cost
		a.samples[i%2].add((1 + float64(i%2)*9) * 100 * math.Exp(0.2*float64(i/2%2*2-1)))
	}
	// A deviation of 0.2 in every sample is a standard deviation of 0.2*1.4826 by the median, pulled by the prior.
	if s := a.sigma(); s < 0.25 || s > 0.2966 {
		t.Errorf("pooled %f", s)
	}
}
