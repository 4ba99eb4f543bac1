package agents

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"
	"pgregory.net/rapid"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// kernelSet is fullSet and what our kernels can be chosen with for large calls.
func kernelSet() []actions.Action {
	set := fullSet()
	for k := range actions.Kernel(actions.NumKernels) {
		for _, n := range []uint8{1, 4, 16, 32, 64} {
			set = append(set, actions.Action{Path: actions.PathLSA, Kernel: k, Channels: n})
		}
	}
	return set
}

// Our kernels are no relatives of NCCL's choices, near ones of each other by kernel, and nearer by CTAs; and what is known
// at first of each with CTAs enough is what trained policies know of the path.
func TestModelOfKernels(t *testing.T) {
	set := kernelSet()
	at := func(s string) int { return find(t, set, s) }
	moved := func(m *costModel, s string) float64 { return m.mean[at(s)] - m.feat[at(s)].mean }
	m := newCostModel(set, bucketOf(19))
	for _, s := range []string{"lsa/oneshot/64", "lsa/twoshot/64", "lsa/bulk/64"} {
		if mean, sd := m.predict(at(s)); mean != 0 || math.Abs(sd*sd-sdCommon*sdCommon-sdOwn*sdOwn) > 1e-12 {
			t.Errorf("%s: %f±%f", s, mean, sd)
		}
	}
	plain := newCostModel(fullSet(), bucketOf(19))
	for i := range plain.mean {
		if m.mean[i] != plain.mean[i] || m.cov[i*m.n+i] != plain.cov[i*plain.n+i] {
			t.Errorf("%s: kernels in the set move what is known of it", set[i])
		}
	}
	m.observe(at("lsa/twoshot/16"), m.feat[at("lsa/twoshot/16")].mean-0.6, 0.01)
	for _, pair := range [][2]string{{"lsa/twoshot/32", "lsa/twoshot/64"}, {"lsa/twoshot/64", "lsa/bulk/64"}, {"lsa/twoshot/4", "lsa/oneshot/4"}} {
		if near, far := moved(m, pair[0]), moved(m, pair[1]); near > far-0.02 {
			t.Errorf("twoshot/16 is better than expected: %s by %.3f, %s by %.3f", pair[0], near, pair[1], far)
		}
	}
	if d := moved(m, "lsa/bulk/64"); d > -0.03 {
		t.Errorf("kernels have something in common, but bulk moved by %.3f", d)
	}
	if d := moved(m, "Ring/LL/16"); d != 0 {
		t.Errorf("Ring/LL/16 moved by %.3f", d)
	}
}

// One CTA is far too few for a large call: that it is slow says little of 64, and nothing is given up for it (GuardConfig.Hopeless).
func TestFewCTAsRuleNothingOut(t *testing.T) {
	set := kernelSet()
	m := newCostModel(set, bucketOf(19))
	m.observe(find(t, set, "lsa/oneshot/1"), math.Log(30), 0.01)
	for _, s := range []string{"lsa/oneshot/64", "lsa/oneshot/32", "lsa/bulk/64"} {
		if mean, _ := m.predict(find(t, set, s)); mean > math.Log(2) {
			t.Errorf("%s is expected at %.2f of the default after oneshot/1 took 30", s, math.Exp(mean))
		}
	}
	small := newCostModel(set, bucketOf(10))
	for i, a := range set {
		if a.Path == actions.PathLSA && (small.mean[i] != 0 || small.feat[i].octave != 0) {
			t.Errorf("2 KiB are one pass of one CTA, but %s is expected at %.2f", a, math.Exp(small.mean[i]))
		}
	}
}

// Of a small call launches and trips count. Of a large AllReduce two shots move what a ring does, and one shot half as many times
// that as there are ranks, in lines of which a sixteenth is number. So it is in one node, and a peer of the same size changes
// nothing about it.
func TestKernelsCostWhatTheyMove(t *testing.T) {
	set := kernelSet()
	expected := func(ranks, nodes int, c actions.Collective, log2 uint8, s string) float64 {
		b := newUCB(Task{Set: set, Bucket: state.Bucket{Collective: c, Log2Bytes: log2}, Topology: state.Topology{Shape: state.Shape{Ranks: ranks, Nodes: nodes}}}).(*ucb)
		mean, _ := b.model.predict(find(t, set, s))
		return math.Exp(mean)
	}
	small, large := math.Exp(kernelLaunch), math.Exp(kernelBytes)
	for _, c := range []struct {
		ranks, nodes int
		collective   actions.Collective
		log2         uint8
		action       string
		want         float64
	}{
		{8, 1, actions.AllReduce, 14, "lsa/oneshot/64", small},
		{8, 1, actions.AllReduce, 24, "lsa/oneshot/64", large * 4 * 16 / 15},
		{2, 1, actions.AllReduce, 24, "lsa/oneshot/64", large * 16 / 15},
		{8, 1, actions.AllReduce, 24, "lsa/twoshot/64", large * 16 / 15},
		{8, 1, actions.AllReduce, 24, "lsa/bulk/64", large},
		{8, 1, actions.AllGather, 24, "lsa/oneshot/64", large * 16 / 15},
		{8, 2, actions.AllReduce, 24, "lsa/oneshot/64", 1}, // nobody knows what is between them
	} {
		if got := expected(c.ranks, c.nodes, c.collective, c.log2, c.action); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s of 2^%d bytes with %s, %d ranks in %d nodes is expected at %.2f of the default, want %g", c.collective, c.log2, c.action, c.ranks, c.nodes, got, c.want)
		}
	}
	peers := NewPeers()
	task := Task{Set: set, Bucket: bucketOf(24), Topology: state.Topology{Shape: state.Shape{Ranks: 8, Nodes: 1}}, Peers: peers}
	peer := newUCB(task).(*ucb)
	task.Bucket.Collective = actions.ReduceScatter // where one shot moves less
	own := newUCB(task).(*ucb)
	i := find(t, set, "lsa/twoshot/64")
	peer.Observe(seen(actions.Default, 1e5))
	peer.Observe(seen(set[i], 1.5e5))
	own.others.gather(0.05)
	if got := math.Exp(own.others.relative[i]); math.Abs(got-1.5) > 1e-6 {
		t.Errorf("a peer measured 1.5 at this size and says %.2f", got)
	}
}

// withKernels is a world of 256 KiB in which two shots with all CTAs take half of NCCL's default, and one CTA is ruinous.
func withKernels(a actions.Action) float64 {
	if a.Path != actions.PathLSA {
		return max(0.9e5, additive(a))
	}
	passes := 64 / float64(a.Channels)
	return 1e5 * []float64{0.2 + 0.7*passes, 0.3 + 0.2*passes, 0.6 + 0.1*passes, 0.55 + 0.1*passes}[a.Kernel]
}

func TestLearnersFindAKernel(t *testing.T) {
	for _, name := range adaptive() {
		for seed := range uint64(4) {
			g := makeGuard(t, name, kernelSet(), bucketOf(17), nil, seed)
			trials := drive(g, simWorld{withKernels, 0.05, rand.New(rand.NewPCG(seed, 7))}, 20)
			if c := withKernels(g.Base()) / 0.5e5; c > 1.1 {
				t.Errorf("%s, seed %d: base %s costs %.2f of the best after %d trials", name, seed, g.Base(), c, trials)
			}
			for _, s := range []string{"lsa/oneshot/1", "lsa/oneshot/4"} {
				if e := g.Estimate(g.arms.set[find(t, g.arms.set, s)]); e.N > 2 {
					t.Errorf("%s, seed %d: %s was tried %d times", name, seed, s, e.N)
				}
			}
		}
	}
}

// Covariances of any set are those of something: no combination has a negative variance.
func TestModelOfKernelsIsPositive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := kernelSet()
		set := []actions.Action{actions.Default}
		for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(1, len(all)-1), 2, 30, rapid.ID).Draw(t, "set") {
			set = append(set, all[i])
		}
		m := newCostModel(set, bucketOf(rapid.Uint8Range(4, 30).Draw(t, "size")))
		cov := mat.NewSymDense(m.n-1, nil)
		for i := 1; i < m.n; i++ {
			for j := i; j < m.n; j++ {
				cov.SetSym(i-1, j-1, m.cov[i*m.n+j])
			}
		}
		var chol mat.Cholesky
		if !chol.Factorize(cov) {
			t.Fatalf("%v", set)
		}
	})
}

// Wherever actions are compared a kernel is what algorithm and protocol are together.
func TestRelativesOfKernels(t *testing.T) {
	set := kernelSet()
	kinds := map[actions.Action]bool{}
	for _, a := range set[1:] {
		kinds[a.Kind()] = true
	}
	lines := splitLines(set)
	if len(lines) != len(kinds) || len(newSiblings(set)) != len(kinds) {
		t.Fatalf("%d lines and %d families of %d kinds", len(lines), len(newSiblings(set)), len(kinds))
	}
	for _, l := range lines {
		for k, i := range l.arms {
			if set[i].Kind() != set[l.arms[0]].Kind() || k > 0 && set[i].Channels <= set[l.arms[k-1]].Channels {
				t.Errorf("%s is in the line of %s", set[i], set[l.arms[0]])
			}
		}
	}
	g := &Guard{arms: newArms(set)}
	for _, c := range []struct {
		a, b string
		want bool
	}{{"lsa/twoshot/16", "lsa/twoshot/32", true}, {"lsa/twoshot/16", "lsa/twoshot/64", false}, {"lsa/twoshot/16", "lsa/bulk/16", false},
		{"lsa/oneshot/16", "Tree/LL/16", false}, {"Ring/LL/8", "Ring/LL/16", true}, {"lsa/bulk/16", "lsa/bulk/16", false}} {
		if got := g.neighbours(find(t, set, c.a), find(t, set, c.b)); got != c.want {
			t.Errorf("%s and %s are neighbours: %v", c.a, c.b, got)
		}
	}
}

// What is measured of a kernel in one size is told the next, where fewer CTAs make fewer passes more.
func TestPeersOfKernels(t *testing.T) {
	set := kernelSet()
	peers := NewPeers()
	make := func(log2 uint8) *ucb {
		b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: log2}
		return newUCB(Task{Set: set, Bucket: b, Topology: state.Topology{Shape: state.Shape{Ranks: 8, Nodes: 1}}, Peers: peers}).(*ucb)
	}
	large, small := make(18), make(15)
	large.Observe(seen(actions.Default, 3e4))
	one := set[find(t, set, "lsa/twoshot/1")]
	large.Observe(seen(one, 9e4)) // three times the default, in 128 passes of up to 512 KiB
	small.refresh(0.05)
	i := slices.Index(set, one)
	if mean, _ := small.model.predict(i); !(mean < math.Log(3)) || !(mean > 0) {
		t.Errorf("expected at %.2f of the default with 16 passes, it took 3 with 128", math.Exp(mean))
	}
}
