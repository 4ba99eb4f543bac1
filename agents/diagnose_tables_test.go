package agents

import (
	"encoding/csv"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
)

const tables = "../tuner/tunersim/testdata/measurements"

// choice is a row of a table of measurements: a bucket and what runs in it.
type choice struct {
	collective actions.Collective
	bytes      uint64
	action     actions.Action
}

// readTable gives the measured medians in ns; the symmetric path is left out, a tuner cannot choose it.
func readTable(t *testing.T, name string) map[choice]float64 {
	t.Helper()
	f, err := os.Open(filepath.Join(tables, name+".csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	out := map[choice]float64{}
	for _, r := range rows[1:] { // ...,collective,bytes,path,algorithm,protocol,channels,median_us
		var c choice
		if c.collective, err = actions.ParseCollective(r[6]); err != nil {
			t.Fatal(err)
		}
		c.bytes, err = strconv.ParseUint(r[7], 10, 64)
		if r[8] == "symmetric" {
			continue
		}
		if err == nil && r[8] == "collective" {
			c.action, err = actions.Parse(r[9] + "/" + r[10] + "/" + r[11])
		}
		us, err2 := strconv.ParseFloat(r[12], 64)
		if err != nil || err2 != nil {
			t.Fatalf("%s: row %v: %v, %v", name, r, err, err2)
		}
		out[c] = us * 1000
	}
	return out
}

// replay runs a communicator of some choices over recorded tables with 5% noise, the counter a constant share.
type replay struct {
	rng       *rand.Rand
	choices   []choice
	detectors map[state.Bucket]*Detector
	diag      *Diagnoser
	said      map[Diagnosis]int
}

func newReplay(d Design, rng *rand.Rand, choices []choice) *replay {
	r := &replay{rng: rng, choices: choices, detectors: map[state.Bucket]*Detector{}, diag: NewDiagnoser(), said: map[Diagnosis]int{}}
	for _, c := range choices {
		b, _ := state.BucketOf(c.collective, c.bytes)
		if r.detectors[b] == nil {
			r.detectors[b] = NewDetector(d)
		}
	}
	return r
}

func (r *replay) run(table map[choice]float64, calls int) (v Verdict) {
	for range calls * len(r.choices) {
		c := r.choices[r.rng.IntN(len(r.choices))]
		s := table[c] * math.Exp(0.05*r.rng.NormFloat64())
		o := state.Observation{Action: c.action, Bytes: c.bytes, SignalNs: state.Ns(s), CounterNs: state.Ns(0.8 * s * math.Exp(0.02*r.rng.NormFloat64())),
			SkewNs: state.Ns(0.1 * s * r.rng.ExpFloat64()), FirstRank: int32(r.rng.IntN(4))}
		b, _ := state.BucketOf(c.collective, c.bytes)
		det := r.detectors[b]
		if v = r.diag.Observe(b, det, o, det.Observe(o)); v.New {
			r.said[v.Diagnosis]++
		}
	}
	return v
}

// common lists the choices that both tables have, in order.
func common(a, b map[choice]float64) []choice {
	var out []choice
	for c := range a {
		if _, ok := b[c]; ok {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(x, y choice) int {
		if x.collective != y.collective {
			return int(x.collective) - int(y.collective)
		}
		if x.bytes != y.bytes {
			return int(x.bytes) - int(y.bytes)
		}
		return int(x.action.Word()) - int(y.action.Word())
	})
	return out
}

// pick takes one choice for each of a few buckets: the default or any other.
func pick(rng *rand.Rand, all []choice, buckets int, onlyDefault bool) []choice {
	by := map[[2]uint64][]choice{}
	var keys [][2]uint64
	for _, c := range all {
		k := [2]uint64{uint64(c.collective), c.bytes}
		if by[k] == nil {
			keys = append(keys, k)
		}
		if !onlyDefault || c.action == actions.Default {
			by[k] = append(by[k], c)
		}
	}
	rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	var out []choice
	for _, k := range keys[:min(buckets, len(keys))] {
		out = append(out, by[k][rng.IntN(len(by[k]))])
	}
	return out
}

func TestDbgTables(t *testing.T) {
	d := mustDesign(t)
	quiet := readTable(t, "h200x4-socket-2nodes-quiet")
	for _, other := range []string{"network-load", "cpu-load"} {
		load := readTable(t, "h200x4-socket-2nodes-"+other)
		all := common(quiet, load)
		worst := 0.0
		for _, c := range all {
			worst = max(worst, load[c]/quiet[c])
		}
		t.Logf("%s: %d choices, largest ratio %.2f", other, len(all), worst)
		for _, def := range []bool{true, false} {
			for _, n := range []int{2, 3, 4, 6, 12, 18} {
				rng := rand.New(rand.NewPCG(1, uint64(n)))
				got := map[string]int{}
				back := map[string]int{}
				for range 200 {
					r := newReplay(d, rng, pick(rng, all, n, def))
					r.run(quiet, 120)
					got[r.run(load, 64).Diagnosis.String()]++
					r.run(load, 100)
					back[r.run(quiet, 64).Diagnosis.String()]++
				}
				t.Log(other, "default", def, "buckets", n, fmt.Sprint(got), "back", fmt.Sprint(back))
			}
		}
	}
}
