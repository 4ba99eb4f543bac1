package agents

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// crowd is a policy on 43 actions whose communicator has 18 more buckets, all measured: the most that a table has.
func crowd(t testing.TB) (l *lstm, w simWorld) {
	t.Helper()
	const peers = 18
	shared := NewPeers()
	makeLearner, err := NewLSTM(untrained(), DefaultPolicyOptions())
	if err != nil {
		t.Fatal(err)
	}
	w = simWorld{additive, 0.05, rand.New(rand.NewPCG(1, 7))}
	for i := range peers + 1 {
		b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: uint8(10 + i)}
		if i > 12 { // beyond the reach of 16 KiB: other collectives of its size
			b = state.Bucket{Collective: actions.Collective(i % (actions.NumAsked - 1)), Log2Bytes: 14 + uint8(i/16)}
		}
		l = makeLearner(Task{Set: fullSet(), Bucket: b, Peers: shared, Topology: state.Topology{Shape: state.Shape{Ranks: 8, Nodes: 2}}}).(*lstm)
		for _, a := range fullSet() {
			l.Observe(w.call(a))
		}
	}
	l = makeLearner(Task{Set: fullSet(), Bucket: bucketOf(14), Peers: shared, Topology: state.Topology{Shape: state.Shape{Ranks: 8, Nodes: 2}}}).(*lstm)
	for i, a := range fullSet() {
		if i%3 == 0 {
			l.Observe(w.call(a))
			l.Observe(w.call(a))
		}
	}
	l.Propose(1)
	return l, w
}

// decideAfter is the costliest decision there is: a call that the LSTM reads, and as many proposals as a guard asks for.
func (l *lstm) decideAfter(o state.Observation, trials int) {
	l.read(l.arms.index[o.Action], &o, 0.1, 0.1, 1)
	l.wakefully(o, trials+len(l.set))
}

// wakefully sees a call and proposes, however long the condition has lasted.
func (l *lstm) wakefully(o state.Observation, trials int) {
	l.search = newSearch()
	l.Observe(o)
	l.Propose(trials)
}

// Bounds on one decision of the policy. The one on time is held three times over, on the least of many rounds, and more
// loosely where plain Go is slower than on the machine it is meant for: under the race detector, for one.
const (
	decisionUs  = 50
	yardstickNs = 6000
)

func least(rounds, calls int, f func()) (ns float64) {
	ns = math.Inf(1)
	for range rounds {
		started := time.Now()
		for range calls {
			f()
		}
		ns = min(ns, float64(time.Since(started).Nanoseconds())/float64(calls))
	}
	return ns
}

// yardstick is how many times slower than the machine that the bounds are for this one runs a sum of 4096 products.
func yardstick() float64 {
	x := make([]float64, 4096)
	sum := 0.0
	return max(1, least(20, 50, func() {
		for i := range x {
			sum += x[i] * x[len(x)-1-i]
		}
	})/yardstickNs)
}

func TestPolicyDecidesQuicklyWithoutAllocating(t *testing.T) {
	l, w := crowd(t)
	calls := make([]state.Observation, 64)
	for i := range calls {
		calls[i] = w.call(fullSet()[i%7*6])
	}
	at := 0
	decide := func() { at++; l.decideAfter(calls[at%len(calls)], 1) }
	if n := testing.AllocsPerRun(200, decide); n != 0 {
		t.Errorf("%.2f allocations a decision", n)
	}
	if n := testing.AllocsPerRun(50, func() { l.wakefully(calls[0], 12) }); n != 0 {
		t.Errorf("%.2f allocations a batch of 12", n)
	}
	took, slower := least(20, 50, decide)/1e3, yardstick()
	t.Logf("%.1f us a decision; the machine is %.1f times slower than usual", took, slower)
	if took > 3*decisionUs*slower {
		t.Errorf("%.1f us a decision, want at most %d, three times over", took, decisionUs)
	}
}

// A view from outside changes nothing and says nothing of what is not known.
func TestPolicyExpects(t *testing.T) {
	l, _ := crowd(t)
	g := NewGuard(l, fullSet(), bucketOf(14), nil, DefaultGuardConfig())
	relative, sd, ok := g.Expects(fullSet()[3])
	if !ok || !(sd > 0) || math.IsNaN(relative) {
		t.Errorf("%g, %g, %v", relative, sd, ok)
	}
	if a, b, _ := g.Expects(fullSet()[3]); a != relative || b != sd {
		t.Error("looking twice shows two things")
	}
	if _, _, ok := g.Expects(actions.Default); ok {
		t.Error("the default is compared with itself")
	}
	if _, _, ok := g.Expects(actions.Action{Path: actions.PathGIN}); ok {
		t.Error("an action that is not in the set is expected to cost something")
	}
	l.Shift(DiagnosisUnknown)
	if _, _, ok := g.Expects(fullSet()[3]); ok {
		t.Error("something is expected of a condition that was not seen yet")
	}
	if _, _, ok := guardOf(&stubborn{}, ring).Expects(ring); ok {
		t.Error("a learner that expects nothing expects something")
	}
}

// BenchmarkLSTMDecision prints what a decision takes as a JSON line for the record that `make bench` keeps.
func BenchmarkLSTMDecision(b *testing.B) {
	for b.Loop() {
		l, w := crowd(b)
		calls := make([]state.Observation, 64)
		for i := range calls {
			calls[i] = w.call(fullSet()[i%7*6])
		}
		at := 0
		us := func(f func(o state.Observation)) float64 {
			return least(50, 100, func() { at++; f(calls[at%len(calls)]) }) / 1e3
		}
		decision := us(func(o state.Observation) { l.decideAfter(o, 1) })
		line, err := json.Marshal(map[string]any{"figure": "lstm decision", "actions": len(l.set), "peers": len(l.task.Peers.order) - 1,
			"decision_us": decision, "target_decision_us": decisionUs, "observe_us": us(l.Observe),
			"propose_us":       us(func(o state.Observation) { l.wakefully(o, 1) }),
			"propose_batch_us": us(func(o state.Observation) { l.wakefully(o, 12) })})
		if err != nil {
			b.Fatal(err)
		}
		fmt.Printf("%s\n", line)
		if decision > decisionUs {
			b.Errorf("a decision took %.1f us, want at most %d", decision, decisionUs)
		}
	}
}

func BenchmarkPolicy(b *testing.B) {
	b.Run("observe", func(b *testing.B) {
		l, w := crowd(b)
		o := w.call(actions.Default)
		b.ReportAllocs()
		for b.Loop() {
			l.Observe(o)
		}
	})
	b.Run("read", func(b *testing.B) { // what the LSTM's step adds to a call that it reads
		l, w := crowd(b)
		o := w.call(actions.Default)
		b.ReportAllocs()
		for b.Loop() {
			l.read(0, &o, 0.1, 0.1, 1)
		}
	})
	for _, trials := range []int{1, 12} {
		b.Run(fmt.Sprintf("propose=%d", trials), func(b *testing.B) {
			l, w := crowd(b)
			o := w.call(fullSet()[6])
			b.ReportAllocs()
			for b.Loop() {
				l.wakefully(o, trials)
			}
		})
	}
	b.Run("decision", func(b *testing.B) {
		l, w := crowd(b)
		o := w.call(fullSet()[6])
		b.ReportAllocs()
		for b.Loop() {
			l.decideAfter(o, 1)
		}
	})
}
