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

// What is expected of symmetric kernels is near what they take, and none that is better than the default would be left out.
func TestSymmetricOnTable(t *testing.T) {
	f, err := os.Open("../docs/figures/gpu-sweep-registered-2gpus-nccl2.32.3-2026-11-22.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		a  actions.Action
		us float64
	}
	defaults, all := map[state.Bucket]float64{}, map[state.Bucket][]row{}
	for _, r := range rows[1:] { // machine,nccl,nranks,nnodes,...,collective,bytes,path,algorithm,protocol,channels,median_us
		c, err := actions.ParseCollective(r[6])
		bytes, err2 := strconv.ParseUint(r[7], 10, 64)
		us, err3 := strconv.ParseFloat(r[12], 64)
		b, ok := state.BucketOf(c, bytes)
		if err != nil || err2 != nil || err3 != nil || !ok {
			t.Fatalf("row %v", r)
		}
		switch r[8] {
		case "default":
			defaults[b] = us
		case "symmetric":
			a, err := actions.Parse("symmetric/" + r[9])
			if err != nil {
				t.Fatalf("row %v: %v", r, err)
			}
			all[b] = append(all[b], row{a, us})
		}
	}
	n, squares, before := 0.0, 0.0, 0.0
	for b, rows := range all {
		set := []actions.Action{actions.Default}
		for _, r := range rows {
			set = append(set, r.a)
		}
		m := newCostModel(set, b)
		for i, r := range rows {
			mean, _ := m.predict(i + 1)
			over := math.Log(r.us / defaults[b])
			n, squares, before = n+1, squares+(mean-over)*(mean-over), before+over*over
			if over < 0.1 && mean > DefaultGuardConfig().Hopeless {
				t.Errorf("%v %s: %.2f times the default, expected at %.1f", b, r.a, math.Exp(over), math.Exp(mean))
			}
		}
	}
	t.Logf("%.0f kernels, rms %.2f; %.2f if nothing is expected", n, math.Sqrt(squares/n), math.Sqrt(before/n))
	if n < 40 || squares > before/9 {
		t.Errorf("%.0f kernels, rms %.2f, %.2f if nothing is expected", n, math.Sqrt(squares/n), math.Sqrt(before/n))
	}
}
