package agents

import (
	"math"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// ginSetOf is a bucket's set of the table, smallest number of CTAs first.
func ginSetOf(costs map[actions.Action]float64) []actions.Action {
	set := []actions.Action{actions.Default}
	for ctas := uint8(1); ctas <= 16; ctas *= 2 {
		a := actions.Action{Path: actions.PathGIN, Backend: actions.BackendGDAKI, Channels: ctas}
		if _, ok := costs[a]; ok {
			set = append(set, a)
		}
	}
	return set
}

// One call says where all numbers of CTAs lie, though our kernels are ten times as fast as anything NCCL has there: what it
// says of itself alone is a small part. While they had sdCommon's doubt and a valley, one call of one CTA at -1.5 left the
// others at -0.5, and learners stayed with it.
func TestGINOnTable(t *testing.T) {
	table := readKernels(t, "gpu-sweep-gin-2gpus")
	var all, within, squares float64
	for b, costs := range table.costs {
		set := ginSetOf(costs)
		for seen := 1; seen < len(set); seen++ {
			m := newUCB(Task{Set: set, Bucket: b, Topology: state.Topology{Shape: state.Shape{Ranks: 2, Nodes: 2}}}).(*ucb).model
			m.observe(seen, costs[set[seen]], 0.05*0.05)
			for i := 1; i < len(set); i++ {
				if i == seen {
					continue
				}
				mean, sd := m.predict(i)
				d := costs[set[i]] - mean
				squares += d * d
				if all++; math.Abs(d) < 2*sd {
					within++
				}
			}
		}
	}
	t.Logf("%.0f of %.0f within two deviations, rms %.2f", within, all, math.Sqrt(squares/all))
	if all < 80 || within < 0.9*all || math.Sqrt(squares/all) > 0.35 {
		t.Errorf("%.0f of %.0f within two deviations, rms %.2f", within, all, math.Sqrt(squares/all))
	}
}

// What fewer contexts cost at one number of CTAs is expected at others, and what they have in common is that they are GIN: a call of
// one says where the other lies, but for sdShared.
func TestModelOfContexts(t *testing.T) {
	set := []actions.Action{actions.Default}
	for _, s := range []string{"gin/gdaki/4", "gin/gdaki/4/c1", "gin/gdaki/4/c4", "gin/gdaki/8", "gin/gdaki/8/c1", "gin/gdaki/8/c2"} {
		a, err := actions.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		set = append(set, a)
	}
	m := newCostModel(set, bucketOf(19))
	for i, want := range []float64{0, 0, 2, 0, 0, 2, 1} {
		if m.feat[i].shared != want {
			t.Errorf("%s: %g octaves are shared, want %g", set[i], m.feat[i].shared, want)
		}
	}
	m.observe(1, -2, 1e-4)
	if d := m.mean[2] - m.mean[1]; math.Abs(d-2*ginShare) > 0.05 {
		t.Errorf("two octaves of contexts fewer are expected at %+.2f, want %.2f", d, 2*ginShare)
	}
	before := m.mean[5]
	m.observe(2, -2.4, 1e-4)
	if d := m.mean[5] - before; d > -0.2 || m.mean[4]-m.mean[5] < 0.2 || m.mean[6] > m.mean[4]-0.1 || m.mean[6] < m.mean[5]+0.1 {
		t.Errorf("sharing pays with 4 CTAs, and with 8 one context is at %.2f (%+.2f), two at %.2f, all at %.2f", m.mean[5], d, m.mean[6], m.mean[4])
	}
}

// Numbers of CTAs on GIN are none of NCCL's channels, and what GIN costs says nothing of NCCL's choices.
func TestModelOfGIN(t *testing.T) {
	plain := fullSet()
	set := append(fullSet(), actions.Action{Path: actions.PathGIN, Backend: actions.BackendGDAKI, Channels: 4},
		actions.Action{Path: actions.PathGIN, Backend: actions.BackendGDAKI, Channels: 64})
	without, with := newCostModel(plain, bucketOf(19)), newCostModel(set, bucketOf(19))
	with.observe(len(plain), -2, 0.01)
	for i := range plain {
		if with.mean[i] != without.mean[i] || with.cov[i*with.n+i] != without.cov[i*without.n+i] {
			t.Errorf("%s: GIN moves what is known of it", set[i])
		}
	}
	if d := with.mean[len(plain)+1] - with.feat[len(plain)+1].mean; d > -1.5 {
		t.Errorf("four CTAs are at -2, and 64 moved by %.2f", d)
	}
}
