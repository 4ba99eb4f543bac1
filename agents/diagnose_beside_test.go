package agents

import (
	"math"
	"math/rand/v2"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// waysBeside are ways between the same two ranks, whose diagnosers know of each other, or do not.
type waysBeside struct {
	rng   *rand.Rand
	ways  [6]*ginWatch
	said  [6]Diagnosis
	begun [6]int // changes
	at    state.Ns
}

func newWaysBeside(design Design, seed uint64, beside bool) *waysBeside {
	w := &waysBeside{rng: rand.New(rand.NewPCG(seed, 6))}
	for i := range w.ways {
		w.ways[i] = newGinWatch(design)
		for _, other := range w.ways[:i] {
			if beside {
				w.ways[i].diagnoser.Beside(other.diagnoser)
			}
		}
	}
	return w
}

// puts makes so many puts on each way, of sizes in turn, with what is added by way and bytes.
func (w *waysBeside) puts(n int, addedNs func(way int, bytes uint64) float64) {
	for i := range n {
		bytes := []uint64{2048, 8192, 16384, 32768}[i%4]
		for way := range w.ways {
			w.put(way, bytes, addedNs(way, bytes))
		}
	}
}

// put makes one.
func (w *waysBeside) put(way int, bytes uint64, addedNs float64) {
	w.at += 1e5
	ns := (10e3 + addedNs) * math.Exp(0.05*w.rng.NormFloat64())
	o := state.Observation{AtNs: w.at, Action: actions.Action{Path: actions.PathGIN, Backend: actions.BackendGDAKI, Channels: 4, Contexts: 4}, Bytes: bytes,
		SignalNs: state.Ns(ns), CounterNs: state.Ns(ns / 2)}
	a, v := w.ways[way].observe(o)
	w.begun[way] += b2i(a.Raised || v.Joined)
	changed := v.Diagnosis != w.said[way]
	if w.said[way] = v.Diagnosis; changed {
		for other := range w.ways {
			if other != way {
				v := w.ways[other].diagnoser.Again()
				w.said[other] = v.Diagnosis
				w.begun[other] += b2i(v.Joined)
			}
		}
	}
}

// A program leaves a slow link within fourteen puts of a way, three or four of each size: by themselves these tell nothing. Those of all
// ways between the same ranks do.
func TestWaysBesideTellWhatFewPutsDoNot(t *testing.T) {
	right, design := [2]int{}, mustDesign(t)
	for trial := range uint64(20) {
		for beside := range 2 {
			w := newWaysBeside(design, trial, beside == 1)
			w.puts(200, func(int, uint64) float64 { return 0 })
			w.puts(14, func(_ int, bytes uint64) float64 { return float64(bytes) * 5 })
			for _, d := range w.said {
				if d == DiagnosisCongestion {
					right[beside]++
				}
			}
		}
	}
	t.Logf("of 120 ways %d say congestion by themselves, %d with those beside them", right[0], right[1])
	if right[0] > 30 || right[1] < 114 {
		t.Error("want 95 of 100 with those beside them, and few without")
	}
}

// A card that is slow for one context alone is that context's: what its own sizes tell is not outvoted by five ways that show a constant.
func TestWaysBesideHideNone(t *testing.T) {
	right, others, design := 0, 0, mustDesign(t)
	for trial := range uint64(20) {
		w := newWaysBeside(design, trial, true)
		w.puts(200, func(int, uint64) float64 { return 0 })
		w.puts(120, func(way int, bytes uint64) float64 {
			if way == 3 {
				return float64(bytes) * 5
			}
			return 2.6e3
		})
		for way, d := range w.said {
			switch {
			case way == 3 && d == DiagnosisCongestion:
				right++
			case way != 3 && d == DiagnosisBackendFallback:
				others++
			}
		}
	}
	t.Logf("%d of 20 say congestion where it is, %d of 100 others fallback", right, others)
	if right < 19 || others < 95 {
		t.Error("want 95 of 100")
	}
}
