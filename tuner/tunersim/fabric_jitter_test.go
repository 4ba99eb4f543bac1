package tunersim

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"dynamiccl/actions"
)

func TestJitterKeepsStructure(t *testing.T) {
	seed := fabricSeed(t)
	names, tables := recorded(t)
	synthetic := rand.New(rand.NewPCG(seed, 7))
	names = append(names, "synthetic")
	tables["synthetic"] = RandomMachineOf("rdma", synthetic).Table(Quiet(), sweepBuckets(), synthetic)
	for _, name := range names {
		table := tables[name]
		if same := Jitter(table, 0, rand.New(rand.NewPCG(seed, 8))); !slices.Equal(same.Rows(), table.Rows()) {
			t.Errorf("%s: strength 0 is no copy", name)
		}
		before := table.Rows()
		j := Jitter(table, 1, rand.New(rand.NewPCG(seed, 8)))
		if !slices.Equal(before, table.Rows()) {
			t.Fatalf("%s: the original changed", name)
		}
		if again := Jitter(table, 1, rand.New(rand.NewPCG(seed, 8))); !slices.Equal(j.Rows(), again.Rows()) {
			t.Errorf("%s: another table from the same source", name)
		}
		after := j.Rows()
		if len(after) != len(before) {
			t.Fatalf("%s: %d rows of %d", name, len(after), len(before))
		}
		moved, relative := 0.0, 0.0
		shift := 0.0
		for i := range before {
			shift += math.Log(after[i].SignalNs/before[i].SignalNs) / float64(len(before))
		}
		for i, r := range after {
			if r.Action != before[i].Action || r.Bytes != before[i].Bytes || r.Collective != before[i].Collective {
				t.Fatalf("%s: row %d is another", name, i)
			}
			d := math.Log(r.SignalNs / before[i].SignalNs)
			moved, relative = max(moved, math.Abs(d)), relative+(d-shift)*(d-shift)/float64(len(before))
		}
		if r := math.Sqrt(relative); moved == 0 || r < 0.02 || r > 0.5 {
			t.Errorf("%s: choices moved by %.3f against each other", name, r)
		}
		if _, err := NewTable(j.Machine, j.NCCL, j.Shape, j.NICs, j.Condition, after); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, b := range j.Buckets() {
			was, _ := table.Default(b)
			is, _ := j.Default(b)
			nearest, want := math.Inf(1), 0.0
			for _, a := range table.Actions(b)[1:] {
				ns, _ := table.Cost(b, a)
				if d := math.Abs(math.Log(ns / was)); d < nearest {
					to, _ := j.Cost(b, a)
					nearest, want = d, to/ns
				}
			}
			if d := math.Abs(math.Log(is / was / want)); d > 0.3 { // 5 standard deviations of an entry's own noise
				t.Errorf("%s %s: the default moved by %.3f, its twin by %.3f", name, b, is/was, want)
			}
		}
	}
}

func TestMachinesAndTablesAreDeterministic(t *testing.T) {
	seed := fabricSeed(t)
	make := func() []Row {
		rng := rand.New(rand.NewPCG(seed, 9))
		m := RandomMachine(rng)
		return m.Table(m.RandomCondition("cpu-load", rng), sweepBuckets(), rng).Rows()
	}
	if !slices.Equal(make(), make()) {
		t.Error("same source, another table")
	}
}

// TestConditionsShareIdiosyncrasies: two sweeps of one machine differ by their scatter only, two machines by more.
func TestConditionsShareIdiosyncrasies(t *testing.T) {
	rng := rand.New(rand.NewPCG(fabricSeed(t), 10))
	m, other := RandomMachineOf("rdma", rng), RandomMachineOf("rdma", rng)
	other.Shape, other.NICs = m.Shape, m.NICs
	for c := range actions.Collective(actions.NumAsked) {
		other.SetActions(c, m.Actions(c))
	}
	distance := func(a, b *Table) float64 {
		var d []float64
		for _, bucket := range a.Buckets() {
			for _, action := range a.Actions(bucket)[1:] {
				x, _ := a.Cost(bucket, action)
				if y, ok := b.Cost(bucket, action); ok {
					d = append(d, math.Abs(math.Log(x/y)))
				}
			}
		}
		return median(d)
	}
	first := m.Table(Quiet(), sweepBuckets(), rng)
	same, stranger := distance(first, m.Table(Quiet(), sweepBuckets(), rng)), distance(first, other.Table(Quiet(), sweepBuckets(), rng))
	if same > 0.12 || stranger < 2*same {
		t.Errorf("two sweeps of one machine are %.3f apart, of two machines %.3f", same, stranger)
	}
}

func TestSampler(t *testing.T) {
	rng := rand.New(rand.NewPCG(fabricSeed(t), 11))
	n := SplitNoise(Noise{Sigma: 0.1, SkewNs: 1000})
	s := NewSampler(n, rng)
	const calls = 20000
	var counter, signal, cross, counterMean, signalMean, skewMean float64
	for range calls {
		c, v, skew := s.Draw(Cost{CounterNs: 5e5, SignalNs: 1e6}, 8)
		x, y := math.Log(c/5e5), math.Log(v/1e6)
		counterMean, signalMean, skewMean = counterMean+x/calls, signalMean+y/calls, skewMean+skew/calls
		counter, signal, cross = counter+x*x/calls, signal+y*y/calls, cross+x*y/calls
	}
	// Standard errors: mean 0.0007, deviation 0.0005, correlation 0.004, skew 1.2% of 2593 (harmonic numbers of 8 less 1/8).
	if math.Abs(counterMean) > 0.004 || math.Abs(signalMean) > 0.004 || math.Abs(math.Sqrt(counter)-0.1) > 0.003 || math.Abs(math.Sqrt(signal)-0.1) > 0.003 {
		t.Errorf("means %.4f %.4f, deviations %.4f %.4f, wanted 0, 0, 0.1, 0.1", counterMean, signalMean, math.Sqrt(counter), math.Sqrt(signal))
	}
	if r := cross / math.Sqrt(counter*signal); math.Abs(r-2.0/3) > 0.025 {
		t.Errorf("correlation %.3f, wanted two thirds", r)
	}
	if math.Abs(skewMean-2593) > 150 {
		t.Errorf("mean skew %.0f ns of 8 ranks that are late by 1000 each", skewMean)
	}
	n.TailProb, n.TailLog, n.DriftSigma = 0.05, 0.7, 0.1
	s = NewSampler(n, rng)
	late, lag, square, last := 0, 0.0, 0.0, 0.0
	for i := range calls {
		c, v, _ := s.Draw(Cost{CounterNs: 9.9e5, SignalNs: 1e6}, 2)
		if c > v {
			t.Fatalf("counter %g after signal %g", c, v)
		}
		if v > 2e6 {
			late++
		}
		if i > 0 {
			lag += s.drift * last
		}
		square, last = square+s.drift*s.drift, s.drift
	}
	// exp(-0.69/0.7) = 0.37 of the 5% are more than twice as long.
	if late < calls/100 || late > calls/25 || lag/square < 0.98 {
		t.Errorf("%d of %d calls twice as long, drift correlated %.3f from call to call", late, calls, lag/square)
	}
	if a := testing.AllocsPerRun(100, func() { s.Draw(Cost{1, 2}, 8) }); a != 0 {
		t.Errorf("%g allocations a draw", a)
	}
}

// TestCounterOfRecordedTables: tables with only signals answer with the default split.
func TestCounterOfRecordedTables(t *testing.T) {
	table := load(t, nvlinkFile)
	for _, b := range table.Buckets() {
		for _, a := range table.Actions(b) {
			signal, _ := table.Cost(b, a)
			counter, ok := table.Counter(b, a)
			if want := signal * DefaultSplit(table.Topology(), b, a); !ok || counter != want {
				t.Fatalf("%s %s: counter %g, want %g", b, a, counter, want)
			}
		}
	}
	if _, ok := table.Counter(table.Buckets()[0], must(t, "gin/proxy/3")); ok {
		t.Error("a counter for what was not measured")
	}
}
