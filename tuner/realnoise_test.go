package tuner_test

import (
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// realPoint is a point of agents/testdata/realnoise at which a choice beats NCCL's default.
type realPoint struct {
	tuner.SessionBucket
	levels []float64   // log cost of each action of the set, over the default's
	noise  [][]float64 // of each action's calls, in the order that they ran
	common []float64   // log cost of the default by burst: quiet, network load, quiet
}

// realLines gives the lines of a file with five columns, the last of them numbers.
func realLines(t *testing.T, name string) (lines [][]string, values [][]float64) {
	t.Helper()
	text, err := os.ReadFile("../agents/testdata/realnoise/" + name)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n")[1:] {
		f := strings.Split(line, ",")
		var xs []float64
		for _, v := range strings.Fields(f[4]) {
			x, err := strconv.ParseFloat(v, 64)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			xs = append(xs, math.Log(x))
		}
		lines, values = append(lines, f), append(values, xs)
	}
	return lines, values
}

func middle(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	return xs[len(xs)/2]
}

func realPoints(t *testing.T) (points []realPoint) {
	at := map[string]int{}
	lines, values := realLines(t, "streams.csv")
	for i, f := range lines {
		bytes, err := strconv.ParseUint(f[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if f[0] == actions.AllReduce.String() || bytes < 1<<16 || f[3] != "0" {
			continue
		}
		a, err := actions.Parse(f[2])
		if err != nil {
			t.Fatal(err)
		}
		k := f[0] + "," + f[1]
		if _, ok := at[k]; !ok {
			at[k] = len(points)
			p := realPoint{}
			for p.Bucket.Collective.String() != f[0] {
				p.Bucket.Collective++
			}
			size, _ := state.SizeBucket(bytes)
			p.Bytes, p.Bucket.Log2Bytes = bytes, uint8(size)
			points = append(points, p)
		}
		p := &points[at[k]]
		mid := middle(values[i])
		for j := range values[i] {
			values[i][j] -= mid
		}
		if a == actions.Default {
			p.Set, p.levels, p.noise = slices.Insert(p.Set, 0, a), slices.Insert(p.levels, 0, mid), slices.Insert(p.noise, 0, values[i])
		} else {
			p.Set, p.levels, p.noise = append(p.Set, a), append(p.levels, mid), append(p.noise, values[i])
		}
	}
	lines, values = realLines(t, "batches.csv")
	for i, f := range lines {
		if j, ok := at[f[2]+","+f[3]]; ok {
			points[j].common = append(points[j].common, values[i]...)
		}
	}
	for i := range points {
		base := points[i].levels[0]
		for j := range points[i].levels {
			points[i].levels[j] -= base
		}
	}
	return points
}

// TestRealNoiseKeepsGains: bursts of 40 real calls at levels that wander as on a real machine, plans of 16 calls. Every
// time that a choice is given up for an alarm its gain is lost until it is found again.
func TestRealNoiseKeepsGains(t *testing.T) {
	const burst, epoch = 40, 16
	points := realPoints(t)
	newLearner, err := agents.New(agents.NameUCB)
	if err != nil {
		t.Fatal(err)
	}
	cfg := tuner.SessionConfig{NewLearner: newLearner, Topology: state.Topology{Shape: state.Shape{Ranks: 4, Nodes: 4}}, Seed: 1}
	for _, p := range points {
		cfg.Buckets = append(cfg.Buckets, p.SessionBucket)
	}
	s, err := tuner.NewSession(cfg)
	if err != nil {
		t.Fatal(err)
	}
	trials, gained := make([][]actions.Action, len(points)), make([]float64, len(points))
	for b := range points[0].common {
		for i, p := range points {
			type call struct{ action, ns int }
			var ran []call
			var base actions.Action
			for c := range burst {
				if c%epoch == 0 {
					for _, r := range ran {
						s.Tell(i, r.action, state.Ns(r.ns), state.Ns(r.ns))
					}
					var changed bool
					var more []actions.Action
					if base, more, changed = s.Plan(i); changed {
						trials[i] = slices.Clone(more)
					}
					ran = ran[:0]
				}
				a := base
				if len(trials[i]) > 0 {
					a, trials[i] = trials[i][0], trials[i][1:]
				}
				j := slices.Index(p.Set, a)
				cost := math.Exp(p.common[b] + p.levels[j] + p.noise[j][(b*burst+c)%len(p.noise[j])])
				ran = append(ran, call{j, int(1e3 * cost)})
				gained[i] -= p.levels[j]
			}
			for _, r := range ran {
				s.Tell(i, r.action, state.Ns(r.ns), state.Ns(r.ns))
			}
		}
	}
	kept, possible := 0.0, 0.0
	for i, p := range points {
		g, best := gained[i]/float64(burst*len(p.common)), -slices.Min(p.levels)
		t.Logf("%s: speed-up %.3f of %.3f", p.Bucket, math.Exp(g), math.Exp(best))
		kept, possible = kept+g, possible+best
	}
	if kept /= possible; kept < 0.93 {
		t.Errorf("%.3f of the possible gain was kept, want at least 0.93", kept)
	} else {
		t.Logf("%.3f of the possible gain was kept", kept)
	}
}
