package agents

import (
	"encoding/csv"
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

// readTable gives the measured medians in ns. The symmetric path and AllToAll are left out: a tuner is not asked.
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
		if r[6] == "AllToAll" || r[8] == "symmetric" {
			continue
		}
		var c choice
		if c.collective, err = actions.ParseCollective(r[6]); err != nil {
			t.Fatal(err)
		}
		c.bytes, err = strconv.ParseUint(r[7], 10, 64)
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

// outcomes replays before, then after, on random choices, and counts the final verdicts there and back.
func outcomes(d Design, seed uint64, before, after map[choice]float64, buckets int, onlyDefault bool, runs int) (there, back, ever map[Diagnosis]int) {
	rng := rand.New(rand.NewPCG(seed, uint64(buckets)))
	there, back, ever = map[Diagnosis]int{}, map[Diagnosis]int{}, map[Diagnosis]int{}
	all := common(before, after)
	for range runs {
		r := newReplay(d, rng, pick(rng, all, buckets, onlyDefault))
		r.run(before, 120)
		there[r.run(after, 64).Diagnosis]++
		r.run(after, 100)
		back[r.run(before, 64).Diagnosis]++
		for k := range r.said {
			ever[k]++
		}
	}
	return there, back, ever
}

// TestRecordedTables: what the recorded conditions of 4x H200 over sockets are called.
func TestRecordedTables(t *testing.T) {
	d, seed := mustDesign(t), detectorSeed(t)
	quiet := readTable(t, "h200x4-socket-2nodes-quiet")
	network := readTable(t, "h200x4-socket-2nodes-network-load")
	cpu := readTable(t, "h200x4-socket-2nodes-cpu-load")
	const runs = 60
	for _, c := range []struct {
		name        string
		load        map[choice]float64
		want        Diagnosis
		buckets     int
		onlyDefault bool
		least       float64 // share that must be right
	}{
		{"CPU load", cpu, DiagnosisCPUContention, 1, true, 0.95},
		{"CPU load", cpu, DiagnosisCPUContention, 2, true, 0.95},
		{"CPU load", cpu, DiagnosisCPUContention, 4, true, 0.95},
		{"CPU load, any choices", cpu, DiagnosisCPUContention, 4, false, 0.95},
		// The network load took -14% to +123%, unevenly (and some choices it made faster): few sizes cannot tell what
		// many can.
		{"network load", network, DiagnosisCongestion, 2, true, 0.4},
		{"network load", network, DiagnosisCongestion, 6, true, 0.8},
		{"network load", network, DiagnosisCongestion, 18, true, 0.85},
		{"network load, any choices", network, DiagnosisCongestion, 6, false, 0.5},
	} {
		there, back, ever := outcomes(d, seed, quiet, c.load, c.buckets, c.onlyDefault, runs)
		t.Logf("quiet to %s, %d buckets: %v; and back: %v", c.name, c.buckets, there, back)
		if float64(there[c.want]) < c.least*runs {
			t.Errorf("quiet to %s, %d buckets: %s in %d of %d runs", c.name, c.buckets, c.want, there[c.want], runs)
		}
		if c.onlyDefault && float64(back[DiagnosisRecovered]) < 0.95*runs {
			t.Errorf("%s to quiet, %d buckets: recovered in %d of %d runs", c.name, c.buckets, back[DiagnosisRecovered], runs)
		}
		if c.want != DiagnosisCPUContention && ever[DiagnosisCPUContention] > 0 {
			t.Errorf("%s, %d buckets: CPU contention was said in %d runs", c.name, c.buckets, ever[DiagnosisCPUContention])
		}
	}
}

// TestQuietTablesAreQuiet: on the quiet tables nobody ever hears of CPU contention, whatever is chosen, however often
// choices change, with one call in fifty taking five times as long.
func TestQuietTablesAreQuiet(t *testing.T) {
	d, seed := mustDesign(t), detectorSeed(t)
	for _, name := range []string{"h200x4-socket-2nodes-quiet", "h200x8-nvlink"} {
		table := readTable(t, name)
		all := common(table, table)
		said := map[Diagnosis]int{}
		calls := 0
		for run := range 40 {
			rng := rand.New(rand.NewPCG(seed, uint64(run)))
			r := newReplay(d, rng, pick(rng, all, 6, false))
			for range 40 {
				for i := range r.choices { // as a learner that explores: another action in the same bucket
					for _, k := range rng.Perm(len(all)) {
						if c := all[k]; c.collective == r.choices[i].collective && c.bytes == r.choices[i].bytes {
							r.choices[i] = c
							break
						}
					}
				}
				spiked := map[choice]float64{}
				for _, c := range r.choices {
					spiked[c] = table[c]
				}
				if r.rng.IntN(2) == 0 {
					spiked[r.choices[0]] *= 5
					r.run(spiked, 1) // a few spikes in a row in one bucket
					spiked[r.choices[0]] /= 5
				}
				r.run(spiked, 20)
			}
			calls += int(r.diag.calls)
			for k, n := range r.said {
				said[k] += n
			}
		}
		t.Logf("%s: %d calls, said: %v", name, calls, said)
		if said[DiagnosisCPUContention] > 0 {
			t.Errorf("%s: CPU contention said %d times on a quiet table", name, said[DiagnosisCPUContention])
		}
	}
}
