package agents

import (
	"encoding/csv"
	"math"
	"os"
	"strconv"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// kernelTable is what `sweep --choices lsa` or `gin` measured: log costs over NCCL's default, by bucket and choice.
type kernelTable struct {
	ranks int
	costs map[state.Bucket]map[actions.Action]float64
}

func readKernels(t *testing.T, name string) kernelTable {
	t.Helper()
	f, err := os.Open("../docs/figures/" + name + "-2026-11-22.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	k := kernelTable{costs: map[state.Bucket]map[actions.Action]float64{}}
	defaults, times := map[state.Bucket]float64{}, map[state.Bucket]float64{}
	for _, r := range rows[1:] { // machine,nccl,nranks,nnodes,...,collective,bytes,path,algorithm,protocol,channels,median_us
		c, err := actions.ParseCollective(r[6])
		bytes, err2 := strconv.ParseUint(r[7], 10, 64)
		us, err3 := strconv.ParseFloat(r[12], 64)
		ranks, err4 := strconv.Atoi(r[2])
		b, ok := state.BucketOf(c, bytes)
		if err != nil || err2 != nil || err3 != nil || err4 != nil || !ok {
			t.Fatalf("%s: row %v", name, r)
		}
		k.ranks = ranks
		if r[8] == "default" {
			defaults[b] += math.Log(us)
			times[b]++
			continue
		}
		name := r[8] + "/" + r[9]
		switch r[8] {
		case "collective":
			continue // NCCL's own, beside which kernels stand
		case "lsa", "gin":
			name += "/" + r[11]
		}
		a, err := actions.Parse(name)
		if err != nil {
			t.Fatalf("%s: row %v: %v", name, r, err)
		}
		if k.costs[b] == nil {
			k.costs[b] = map[actions.Action]float64{}
		}
		k.costs[b][a] = math.Log(us)
	}
	for b, costs := range k.costs {
		for a := range costs {
			costs[a] -= defaults[b] / times[b]
		}
	}
	return k
}

// What is expected of our kernels before anything is measured is near what they take, with 2 ranks and with 4, and as near as
// is claimed. With nothing known of their launches they were 0.5 (factor 0.6) dearer than they are in each of these tables, and
// one shot of AllReduce was thought to move twice what it does.
func TestKernelsOnTables(t *testing.T) {
	for _, c := range []struct {
		name   string
		ranks  int
		level  float64 // mean deviation of log costs with all passes at once, at most
		spread float64 // and their root mean square
	}{
		{"gpu-sweep-kernels", 4, 0.12, 0.25}, {"gpu-sweep-kernels-stream", 4, 0.2, 0.25},
		{"gpu-sweep-kernels-2gpus", 2, 0.1, 0.25}, {"gpu-sweep-kernels-2gpus-stream", 2, 0.15, 0.25},
	} {
		k := readKernels(t, c.name)
		if k.ranks != c.ranks {
			t.Fatalf("%s: %d ranks", c.name, k.ranks)
		}
		var sum, squares, n, within, all, worst float64
		for b, costs := range k.costs {
			set := []actions.Action{actions.Default}
			for a := range costs {
				set = append(set, a)
			}
			m := newUCB(Task{Set: set, Bucket: b, Topology: state.Topology{Shape: state.Shape{Ranks: k.ranks, Nodes: 1}}}).(*ucb).model
			for i, a := range set[1:] {
				mean, sd := m.predict(i + 1)
				d := costs[a] - mean
				all++
				if math.Abs(d) < 2*sd {
					within++
				}
				if m.feat[i+1].octave < 0.2 {
					n++
					sum += d
					squares += d * d
				}
				worst = max(worst, math.Abs(d))
			}
		}
		t.Logf("%s: %.0f choices with all passes at once %+.2f, rms %.2f; %.0f%% of all %.0f within two deviations, worst %.2f", c.name, n, sum/n,
			math.Sqrt(squares/n), 100*within/all, all, worst)
		if math.Abs(sum/n) > c.level || math.Sqrt(squares/n) > c.spread || within < 0.93*all {
			t.Errorf("%s: off by %+.2f, rms %.2f, %.0f of %.0f within two deviations", c.name, sum/n, math.Sqrt(squares/n), within, all)
		}
	}
}
