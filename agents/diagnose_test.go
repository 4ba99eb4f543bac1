package agents

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// world is a communicator whose costs are alpha + beta*bytes, and a change that comes over it.
type world struct {
	rng     *rand.Rand
	sizes   []uint64
	alphaNs float64
	betaNs  float64 // a byte
	share   float64 // of the signal that the counter takes
	rho     float64 // correlation of counter's and signal's noise
	ranks   int
	late    int32   // rank that is always late, -1: none
	lateNs  float64 // by how much
	cost    func(bytes uint64, signal, counter float64) (float64, float64)
	det     []*Detector
	diag    *Diagnoser
}

func unchanged(_ uint64, s, c float64) (float64, float64) { return s, c }

func newWorld(d Design, rng *rand.Rand) *world {
	w := &world{rng: rng, late: -1, cost: unchanged, diag: NewDiagnoser()}
	all := []uint64{1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	w.sizes = all[:2+rng.IntN(5)]
	w.alphaNs = 1000 * (12 + 48*rng.Float64())
	w.betaNs = 1 / (1.5 + 8.5*rng.Float64())
	w.share, w.rho, w.ranks = 0.5+0.45*rng.Float64(), rng.Float64(), 2+rng.IntN(7)
	for range w.sizes {
		w.det = append(w.det, NewDetector(d))
	}
	return w
}

func (w *world) before(bytes uint64) float64 { return w.alphaNs + w.betaNs*float64(bytes) }

func (w *world) span() (lo, hi uint64) {
	lo, hi = w.sizes[0], w.sizes[0]
	for _, s := range w.sizes {
		lo, hi = min(lo, s), max(hi, s)
	}
	return lo, hi
}

// call makes one collective of a random size: 5% noise, one call in a hundred takes five times as long, ranks arrive in
// any order with an exponential skew.
func (w *world) call() Verdict {
	i := w.rng.IntN(len(w.sizes))
	bytes := w.sizes[i]
	s := w.before(bytes)
	s, c := w.cost(bytes, s, s*w.share)
	a := w.rng.NormFloat64()
	s *= math.Exp(0.05 * a)
	c *= math.Exp(0.05 * (w.rho*a + math.Sqrt(1-w.rho*w.rho)*w.rng.NormFloat64()))
	if w.rng.Float64() < 0.01 {
		s, c = 5*s, 5*c
	}
	o := state.Observation{Action: actions.Default, Bytes: bytes, SignalNs: state.Ns(s), CounterNs: state.Ns(c),
		SkewNs: state.Ns(0.15 * s * w.rng.ExpFloat64()), FirstRank: int32(w.rng.IntN(w.ranks))}
	if w.late >= 0 && w.rng.Float64() < 0.97 {
		o.FirstRank = w.late
		o.SkewNs += state.Ns(w.lateNs)
	}
	b, _ := state.BucketOf(actions.AllReduce, bytes)
	return w.diag.Observe(b, w.det[i], o, w.det[i].Observe(o))
}

// change makes the condition of a diagnosis come over w.
func (w *world) change(d Diagnosis) {
	lo, hi := w.span()
	between := func(a, b float64) float64 { return a + (b-a)*w.rng.Float64() }
	switch d {
	case DiagnosisBackendFallback: // 8% as in the GIN paper (16.7 us GDAKI, 18.0 us Proxy) to 60% at the smallest size
		added := between(0.08, 0.6) * w.before(lo)
		w.cost = func(_ uint64, s, c float64) (float64, float64) { return s + added, c + added }
	case DiagnosisCongestion:
		if w.before(hi) > 2*w.before(lo) && w.rng.IntN(2) == 0 { // everything slower; where sizes differ in time at all
			f := between(1.12, 2.5)
			w.cost = func(_ uint64, s, c float64) (float64, float64) { return s * f, c * f }
			return
		}
		perByte := between(0.15, 2) * w.before(hi) / float64(hi)
		w.cost = func(b uint64, s, c float64) (float64, float64) { return s + perByte*float64(b), c + perByte*float64(b) }
	case DiagnosisRemoteSide:
		f, added := between(1.1, 3), 0.0
		if w.rng.IntN(2) == 0 {
			f, added = 1, between(0.1, 2)*w.before(lo)
		}
		w.cost = func(_ uint64, s, c float64) (float64, float64) { return s*f + added, c }
	case DiagnosisSlowRank:
		w.late, w.lateNs = int32(w.rng.IntN(w.ranks)), between(0.5, 5)*w.before(hi)
		if w.rng.IntN(2) == 0 { // the late rank may also be slow at communicating
			f := between(1.1, 1.3)
			w.cost = func(_ uint64, s, c float64) (float64, float64) { return s * f, c * f }
		}
	case DiagnosisCPUContention:
		quantum := []float64{1e6, 3e6, 4e6, 10e6}[w.rng.IntN(4)]
		w.cost = func(_ uint64, s, c float64) (float64, float64) {
			if w.rng.Float64() < 0.1 {
				return s, c
			}
			wait := quantum * float64(1+w.rng.IntN(6))
			return s + wait, c + wait
		}
	}
}

func (w *world) run(calls int) (v Verdict) {
	for range calls * len(w.sizes) {
		v = w.call()
	}
	return v
}

var truths = []Diagnosis{DiagnosisBackendFallback, DiagnosisCongestion, DiagnosisRemoteSide, DiagnosisSlowRank,
	DiagnosisCPUContention, DiagnosisRecovered, DiagnosisNone}

// confusion is what was said of generated cases of one truth, 64 calls a bucket after the change.
type confusion struct {
	said  [DiagnosisUnknown + 1]int
	found int // cases in which the truth was said at some time
	until int // calls of a bucket until then, summed
	wrong int // cases in which something wrong was said meanwhile
	cases int
}

func (c *confusion) share(d Diagnosis) float64 { return float64(c.said[d]) / float64(c.cases) }

func diagnoseCases(design Design, truth Diagnosis, seed uint64, cases int) confusion {
	c := confusion{cases: cases}
	rng := rand.New(rand.NewPCG(seed, uint64(truth)))
	for range cases {
		w := newWorld(design, rng)
		if truth == DiagnosisRecovered {
			w.change([]Diagnosis{DiagnosisBackendFallback, DiagnosisCongestion, DiagnosisRemoteSide, DiagnosisCPUContention}[rng.IntN(4)])
		}
		w.run(60 + rng.IntN(240))
		if truth == DiagnosisRecovered {
			w.cost = unchanged
		}
		w.change(truth)
		old := w.diag.calls
		var v Verdict
		first, mistaken := true, false
		for range 64 * len(w.sizes) {
			if v = w.call(); v.New && v.Diagnosis == truth && first {
				first = false
				c.found++
				c.until += int(w.diag.calls-old) / len(w.sizes)
			}
			mistaken = mistaken || v.New && v.Diagnosis != truth && v.Diagnosis != DiagnosisUnknown
		}
		if mistaken {
			c.wrong++
		}
		c.said[v.Diagnosis]++
	}
	return c
}

func diagnosisCases() int {
	if os.Getenv("DYN_LONG") == "1" {
		return 1000
	}
	return 200
}

// TestDiagnosesAreRight: each diagnosis in at least 95% of generated cases, 64 calls a bucket after the change.
func TestDiagnosesAreRight(t *testing.T) {
	for _, truth := range truths {
		c := diagnoseCases(mustDesign(t), truth, detectorSeed(t), diagnosisCases())
		row := fmt.Sprintf("%-16s", truth)
		for d, n := range c.said {
			if n > 0 {
				row += fmt.Sprintf(" %s %.1f%%,", Diagnosis(d), 100*c.share(Diagnosis(d)))
			}
		}
		t.Logf("%s said after %.1f calls a bucket, something wrong said meanwhile in %.1f%%", row, float64(c.until)/math.Max(1, float64(c.found)), 100*float64(c.wrong)/float64(c.cases))
		if right := c.share(truth); right < 0.95 && truth != DiagnosisNone {
			t.Errorf("%s: right in %.1f%% of cases, want 95%%", truth, 100*right)
		}
		if n := c.said[DiagnosisCPUContention]; truth == DiagnosisNone && n > 0 {
			t.Errorf("CPU contention said %d times although nothing changed", n)
		}
	}
}

// BenchmarkDiagnosisFigures prints the same as JSON lines for the record that `make bench` keeps.
func BenchmarkDiagnosisFigures(b *testing.B) {
	design, seed := mustDesign(b), detectorSeed(b)
	for b.Loop() {
		for _, truth := range truths {
			c := diagnoseCases(design, truth, seed, diagnosisCases())
			line, err := json.Marshal(map[string]any{"figure": "diagnosis", "truth": truth.String(), "cases": c.cases, "seed": seed,
				"right": c.share(truth), "calls_until_said": float64(c.until) / math.Max(1, float64(c.found)),
				"wrong_meanwhile": float64(c.wrong) / float64(c.cases), "said_cpu_contention": c.said[DiagnosisCPUContention]})
			if err != nil {
				b.Fatal(err)
			}
			fmt.Println(string(line))
			if truth != DiagnosisNone && c.share(truth) < 0.95 {
				b.Errorf("%s: right in %.1f%% of cases, want 95%%", truth, 100*c.share(truth))
			}
		}
	}
}

// TestOneBucket: a pair of latencies at one size cannot tell a constant from growth, and says so; what else it can tell
// it does.
func TestOneBucket(t *testing.T) {
	design, seed := mustDesign(t), detectorSeed(t)
	for _, c := range []struct {
		change, want Diagnosis
	}{
		{DiagnosisBackendFallback, DiagnosisUnknown}, {DiagnosisCongestion, DiagnosisUnknown},
		{DiagnosisRemoteSide, DiagnosisRemoteSide}, {DiagnosisSlowRank, DiagnosisSlowRank}, {DiagnosisCPUContention, DiagnosisCPUContention},
	} {
		right := 0
		const cases = 100
		rng := rand.New(rand.NewPCG(seed, uint64(c.change)))
		for range cases {
			w := newWorld(design, rng)
			w.sizes = []uint64{16 << 10}
			w.run(150)
			w.change(c.change)
			if w.run(64).Diagnosis == c.want {
				right++
			}
		}
		t.Logf("%s at one size: %s in %d of %d", c.change, c.want, right, cases)
		if right < 90 {
			t.Errorf("%s at one size: %s in %d of %d cases, want 90", c.change, c.want, right, cases)
		}
	}
}

// TestSecondSizeDecides: what was unknown with one size is named once a second size is used.
func TestSecondSizeDecides(t *testing.T) {
	w := newWorld(mustDesign(t), rand.New(rand.NewPCG(detectorSeed(t), 7)))
	w.sizes, w.alphaNs, w.betaNs = []uint64{1 << 10, 1 << 20}, 20e3, 0.3
	w.det = []*Detector{NewDetector(mustDesign(t)), NewDetector(mustDesign(t))}
	w.run(100)
	w.cost = func(_ uint64, s, c float64) (float64, float64) { return s + 8e3, c + 8e3 }
	both := w.sizes
	w.sizes = both[:1]
	if v := w.run(64); v.Diagnosis != DiagnosisUnknown || v.Signal < 1.2 {
		t.Errorf("one size: %s, want unknown with a ratio of about 1.4", v)
	}
	w.sizes = both
	if v := w.run(32); v.Diagnosis != DiagnosisBackendFallback {
		t.Errorf("two sizes: %s, want backend-fallback", v)
	}
}

// TestSlowRankComesAndGoes: costs do not change, so no detector alarms.
func TestSlowRankComesAndGoes(t *testing.T) {
	w := newWorld(mustDesign(t), rand.New(rand.NewPCG(detectorSeed(t), 8)))
	w.ranks = 8
	w.run(100)
	w.late, w.lateNs = 3, 100e3+w.before(1<<20)
	if v := w.run(64); v.Diagnosis != DiagnosisSlowRank || v.Rank != 3 || v.LateNs < state.Ns(w.lateNs) {
		t.Errorf("late rank 3: %s (rank %d, %d ns)", v, v.Rank, v.LateNs)
	}
	w.late = -1
	if v := w.run(128); v.Diagnosis != DiagnosisRecovered {
		t.Errorf("rank 3 in time again: %s, want recovered", v)
	}
}

// TestBadObservationsLeaveNoTrace: latencies that no clock can mean change nothing that a diagnoser says.
func TestBadObservationsLeaveNoTrace(t *testing.T) {
	run := func(bad bool) string {
		w := newWorld(mustDesign(t), rand.New(rand.NewPCG(9, 9)))
		said := ""
		for i := range 400 * len(w.sizes) {
			if i == 150*len(w.sizes) {
				w.cost = func(_ uint64, s, c float64) (float64, float64) { return s * 1.5, c * 1.5 }
			}
			if v := w.call(); v.New {
				said += v.Diagnosis.String() + "\n"
			}
			if bad {
				b, _ := state.BucketOf(actions.AllReduce, w.sizes[0])
				for _, ns := range []state.Ns{0, -1, math.MinInt64, math.MaxInt64, maxPlausibleNs + 1} {
					o := state.Observation{SignalNs: ns, CounterNs: ns, AtNs: -ns, SkewNs: ns, FirstRank: -1, Bytes: w.sizes[0]}
					w.diag.Observe(b, w.det[0], o, w.det[0].Observe(o))
				}
			}
		}
		return said
	}
	if clean, dirty := run(false), run(true); clean != dirty || clean == "" {
		t.Errorf("said without bad observations:\n%sand with:\n%s", clean, dirty)
	}
}

func TestVerdictString(t *testing.T) {
	for _, c := range []struct {
		v    Verdict
		want string
	}{
		{Verdict{}, "none"},
		{Verdict{Diagnosis: DiagnosisSlowRank, Rank: 3, LateNs: 41500}, "slow-rank: rank 3 arrives last, typically 41.5 us after the first"},
		{Verdict{Diagnosis: DiagnosisCongestion, Buckets: 4, Calls: 96, Signal: 1.42, Counter: 1.4, AddedNs: 9200, AtBytes: 4096},
			"congestion: signal 1.42x, counter 1.40x, +9.2 us at 4 KiB, 96 calls of 4 sizes or collectives"},
	} {
		if got := c.v.String(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// What is kept of a bucket's evidence between judgements is what its calls give, also where another episode has as many, or an alarm
// takes some away.
func TestShiftsAreUpToDate(t *testing.T) {
	call := func(ns state.Ns) state.Observation { return state.Observation{Bytes: 1 << 20, SignalNs: ns} }
	e := &evidence{bytes: 1 << 20, frozen: []reference{{key: keyOf(call(1)), signal: math.Log(10_000), expectedBy: 100}}}
	calls := uint64(0)
	check := func(what string, want float64) {
		t.Helper()
		s, ok := e.shift()
		if got := math.Exp(s.signal); !ok || math.Abs(got-want) > 1e-6 || s.alarmed != e.alarmed || s.bytes != e.bytes {
			t.Errorf("%s: %.3f times as long, want %.3f; %+v", what, got, want, s)
		}
	}
	take := func(n int, ns state.Ns) {
		for range n {
			calls++
			e.take(e.remember(calls, call(ns)))
		}
	}
	take(4, 12_000)
	check("an episode", 1.2)
	for range 4 {
		e.remember(calls+1, call(15_000))
	}
	e.start(calls + 1)
	calls++
	check("another one of as many calls", 1.5)
	take(12, 13_000)
	check("later calls", 1.3)
	take(14, 11_000)
	check("and the latest", 1.3)
	e.excursion, e.alarmed, e.bytes = 10, true, 1<<19
	check("those that made an alarm left out", 1.1)
}

// An episode that stays open beside many sizes, as in a program: with how many judgements it would cost to sum up every size each time.
func BenchmarkDiagnoserJudge(b *testing.B) {
	diag, rng := NewDiagnoser(), rand.New(rand.NewPCG(1, 9))
	for size := range 24 {
		e := &evidence{bytes: float64(uint64(1) << size), alarmed: true, taken: evidenceCalls}
		for i := range e.after {
			e.after[i] = deviation{signal: 0.1 + 0.05*rng.NormFloat64(), before: 10 + 0.1*float64(size), expectedBy: 100}
		}
		diag.order = append(diag.order, e)
	}
	diag.open = true // downward, which costs say is nothing: no cause is looked for
	b.ReportAllocs()
	for b.Loop() {
		diag.order[0].summedAt = [2]int{} // it had a call
		diag.judge()
	}
	perJudgement, began := float64(b.Elapsed())/float64(b.N), time.Now()
	const all = 100
	for range all {
		for _, e := range diag.order {
			e.summedAt = [2]int{}
		}
		diag.judge()
	}
	b.ReportMetric(float64(time.Since(began))/all/perJudgement, "all/one")
}
