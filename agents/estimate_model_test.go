package agents

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// fullSet is the set of AllReduce in practice.
func fullSet() []actions.Action {
	set := []actions.Action{actions.Default}
	for _, algorithm := range []actions.Algorithm{actions.Ring, actions.Tree} {
		for _, protocol := range []actions.Protocol{actions.LL, actions.LL128, actions.Simple} {
			for _, channels := range []uint8{1, 2, 4, 8, 16, 24, 32} {
				set = append(set, actions.Action{Path: actions.PathCollective, Algorithm: algorithm, Protocol: protocol, Channels: channels})
			}
		}
	}
	return set
}

func bucketOf(log2Bytes uint8) state.Bucket {
	return state.Bucket{Collective: actions.AllReduce, Log2Bytes: log2Bytes}
}

func find(t testing.TB, set []actions.Action, s string) int {
	t.Helper()
	for i, a := range set {
		if a.String() == s {
			return i
		}
	}
	t.Fatalf("no %s", s)
	return 0
}

// Conditioning on measurements in any order is the same, and never makes anything less certain.
func TestModelOrder(t *testing.T) {
	set := fullSet()
	rapidCheck(t, func(t *rapid.T) {
		bucket := bucketOf(rapid.Uint8Range(8, 30).Draw(t, "size"))
		forward, backward := newCostModel(set, bucket), newCostModel(set, bucket)
		type measured struct {
			i           int
			y, variance float64
		}
		ms := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) measured {
			return measured{rapid.IntRange(0, len(set)-1).Draw(t, "i"), rapid.Float64Range(-1, 2).Draw(t, "y"), rapid.Float64Range(1e-4, 0.1).Draw(t, "v")}
		}), 1, 20).Draw(t, "measured")
		for k := range ms {
			_, before := forward.predict(ms[k].i)
			forward.observe(ms[k].i, ms[k].y, ms[k].variance)
			if _, after := forward.predict(ms[k].i); after > before+1e-9 {
				t.Fatalf("uncertainty grew from %f to %f", before, after)
			}
			m := ms[len(ms)-1-k]
			backward.observe(m.i, m.y, m.variance)
		}
		for i := range set {
			m1, s1 := forward.predict(i)
			m2, s2 := backward.predict(i)
			if math.Abs(m1-m2) > 1e-5 || math.Abs(s1-s2) > 1e-4 {
				t.Fatalf("%s: %f±%f forward, %f±%f backward", set[i], m1, s1, m2, s2)
			}
		}
		if m, s := forward.predict(0); m != 0 || s != 0 {
			t.Fatalf("the default, which is the reference, moved to %f±%f", m, s)
		}
	})
}

func TestModelNeighbours(t *testing.T) {
	set := fullSet()
	m := newCostModel(set, bucketOf(14))
	near, far := find(t, set, "Ring/LL/24"), find(t, set, "Tree/Simple/2")
	nearBefore, _ := m.predict(near)
	farBefore, farSdBefore := m.predict(far)
	m.observe(find(t, set, "Ring/LL/32"), 1.5, 0.003)
	nearAfter, sd := m.predict(near)
	farAfter, farSd := m.predict(far)
	if nearAfter-nearBefore < 1 || sd > 0.2 {
		t.Errorf("the neighbour of a bad action is predicted at %f±%f", nearAfter, sd)
	}
	if farAfter-farBefore > 0.5*(nearAfter-nearBefore) || farSd < 0.8*farSdBefore {
		t.Errorf("a stranger moved as well: from %f±%f to %f±%f", farBefore, farSdBefore, farAfter, farSd)
	}
}

// One channel for 256 MiB is fifty times the default on NVLink: it must look hopeless before anything is measured.
func TestModelFewChannelsForManyBytes(t *testing.T) {
	set := fullSet()
	m := newCostModel(set, bucketOf(28))
	hopeless := DefaultGuardConfig().Hopeless
	for _, name := range []string{"Ring/LL/1", "Tree/LL/1", "Ring/Simple/1", "Ring/LL128/1", "Tree/LL/2"} {
		if mean, _ := m.predict(find(t, set, name)); mean < hopeless {
			t.Errorf("%s is predicted at %.1f times the default", name, math.Exp(mean))
		}
	}
	if mean, _ := m.predict(find(t, set, "Ring/Simple/32")); mean > 0.2 {
		t.Errorf("Ring/Simple/32 is predicted at %.2f times the default", math.Exp(mean))
	}
	small := newCostModel(set, bucketOf(12))
	if mean, _ := small.predict(find(t, set, "Ring/LL/1")); mean > 0.2 {
		t.Errorf("one channel for 4 KiB is predicted at %.2f times the default", math.Exp(mean))
	}
}

func TestModelTakesAnySet(t *testing.T) {
	for _, set := range [][]actions.Action{
		{actions.Default},
		{actions.Default, {Path: actions.PathSymmetric}},
		{actions.Default, {Path: actions.PathCollective, Algorithm: actions.NVLS, Protocol: actions.Simple}},
	} {
		m := newCostModel(set, bucketOf(20))
		for i := range set {
			m.observe(i, 0.3, 0.01)
			m.observe(i, 0.3, 0)
			m.observe(i, 0.3, 0)
		}
		for i := range set {
			if mean, sd := m.predict(i); math.IsNaN(mean) || math.IsNaN(sd) {
				t.Errorf("%v: %f±%f", set, mean, sd)
			}
		}
	}
}

func TestMemoryFindsTheConditionThatComesBack(t *testing.T) {
	set := fullSet()[:4]
	a := newArms(set)
	fill := func(costs ...float64) {
		a.reset()
		for i, c := range costs {
			for range 4 {
				if c > 0 {
					a.samples[i].add(c)
				}
			}
		}
	}
	var m memory
	fill(100, 80, 120, 0)
	m.save(a)
	fill(200, 300, 150, 0)
	m.save(a)
	fill(5000, 0, 0, 2000)
	m.save(a)
	if got := m.winners(nil); len(got) != 3 || got[0] != 3 || got[1] != 2 || got[2] != 1 {
		t.Errorf("winners %v, want the latest condition's first", got)
	}
	fill(103, 0, 0, 0)
	if r := m.likely(a); r.winner() != 1 {
		t.Errorf("a default of 103 was taken for the condition that %s won", set[r.winner()])
	}
	fill(101, 79, 0, 60)
	m.save(a)
	if len(m.regimes) != 3 || m.regimes[0].winner() != 3 {
		t.Errorf("%d conditions, the latest won by %d: the same condition must be remembered once", len(m.regimes), m.regimes[0].winner())
	}
	for i := range 10 {
		fill(1e4*math.Pow(3, float64(i)), 1, 0, 0)
		m.save(a)
	}
	if len(m.regimes) != maxRegimes {
		t.Errorf("%d conditions are kept", len(m.regimes))
	}
	a.reset()
	m.save(a)
	if len(m.regimes) != maxRegimes {
		t.Error("a condition in which nothing was measured is remembered")
	}
}

func TestMemorySeed(t *testing.T) {
	set := fullSet()
	a := newArms(set)
	var m memory
	m.seed(a, map[actions.Action]float64{set[3]: 50})
	if m.likely(a) != nil {
		t.Error("costs without the default's are remembered")
	}
	m.seed(a, map[actions.Action]float64{set[0]: 100, set[3]: 50, set[4]: -1, set[5]: math.NaN(), set[6]: math.Inf(1), {Path: 77}: 1})
	if got := m.winners(nil); len(got) != 1 || got[0] != 3 {
		t.Errorf("winners %v", got)
	}
	r := m.likely(a)
	for i, n := range r.n {
		if (n > 0) != (i == 0 || i == 3) {
			t.Errorf("%s has %d samples", set[i], n)
		}
	}
}

// The first calls of a condition come in before it is known to be one; the condition before must not be remembered by them.
func TestMemoryLeavesOutTheLatestCalls(t *testing.T) {
	a := newArms(fullSet()[:3])
	for range 40 {
		a.samples[0].add(100)
		a.samples[1].add(80)
	}
	for range lateDetection {
		a.samples[1].add(9000)
	}
	var m memory
	m.save(a)
	if got := math.Exp(float64(m.regimes[0].logNs[1])); math.Abs(got-80) > 0.1 {
		t.Errorf("remembered at %f", got)
	}
}

// In one batch, what was already chosen counts as measured: a bandit must not fill a batch with one action.
func TestUCBSpreadsABatch(t *testing.T) {
	set := fullSet()
	l := makeLearner(t, NameUCB, set, bucketOf(12), nil, 1)
	for range 4 {
		l.Observe(seen(set[0], 1e5))
	}
	_, trials := l.Propose(12)
	different := map[actions.Action]bool{}
	for _, a := range trials {
		different[a] = true
	}
	if len(trials) != 12 || len(different) < 10 {
		t.Errorf("%d different actions in %v", len(different), trials)
	}
}
