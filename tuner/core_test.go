package tuner_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
	"dynamiccl/tuner"
	"dynamiccl/tuner/tunersim"
)

const comm = tuner.CommID(0xabc)

// group plays all ranks of one communicator: it applies plans as the plugin does (docs/design.md, decisions 2, 3 and 5)
// and tells the core what the calls took. Plans come into force at the next epoch boundary.
type group struct {
	t        *testing.T
	core     *tuner.Core
	table    *tunersim.Table
	rng      *rand.Rand
	ranks    int
	seq      uint64
	force    map[state.Bucket]tuner.Entry
	next     *tuner.Plan
	ids      map[state.Bucket]uint32
	calls    map[state.Bucket]int
	lose     float64 // probability that a rank's sample is lost
	cost     map[state.Bucket]float64
	plans    int    // published: the version of the latest
	running  uint32 // version of the plan in force
	findings []tuner.Finding
	learned  []tuner.Learned
	trace    strings.Builder
}

const (
	epochCalls = 16
	tickCalls  = 20
)

func newGroup(t *testing.T, learner string, explore bool, table *tunersim.Table, seed uint64) *group {
	t.Helper()
	newLearner, err := agents.New(learner)
	if err != nil {
		t.Fatal(err)
	}
	core, err := tuner.New(tuner.Config{NewLearner: newLearner, Explore: explore, Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	return &group{t: t, core: core, table: table, ranks: 4, rng: rand.New(rand.NewPCG(seed, 1)), force: map[state.Bucket]tuner.Entry{},
		ids: map[state.Bucket]uint32{}, calls: map[state.Bucket]int{}, cost: map[state.Bucket]float64{}}
}

func (g *group) step(e tuner.Event) {
	out := g.core.Step(state.Ns(g.seq)*1000+1, e)
	for i := range out.Plans {
		p := out.Plans[i]
		p.Entries = slices.Clone(p.Entries)
		g.check(&p)
		g.next = &p
		g.plans++
	}
	g.findings = append(g.findings, out.Findings...)
	g.learned = append(g.learned, out.Learned...)
	if len(out.Plans) > 0 {
		g.step(tuner.Published{Comm: comm, Version: uint64(g.plans)})
	}
}

// check holds every plan to what the shared memory can carry and to what NCCL allows.
func (g *group) check(p *tuner.Plan) {
	g.t.Helper()
	if len(p.Entries) > tuner.MaxEntries || p.SampleEvery <= 0 || p.SampleEvery&(p.SampleEvery-1) != 0 {
		g.t.Fatalf("plan with %d entries, sampling every %d epochs", len(p.Entries), p.SampleEvery)
	}
	for _, e := range p.Entries {
		if e.ID == 0 || len(e.Trials) > tuner.MaxTrials {
			g.t.Fatalf("entry %+v", e)
		}
		for _, a := range append([]actions.Action{e.Base}, e.Trials...) {
			if a != actions.Default && (a.Path != actions.PathCollective || a.Algorithm > actions.Ring || a.Channels == 0) {
				g.t.Fatalf("action %v is not in the set of %v", a, e.Bucket)
			}
		}
	}
}

func (g *group) join(e tuner.CommJoined) {
	e.Comm, e.Shape = comm, state.Shape{Ranks: g.ranks, Nodes: 2}
	g.step(e)
}

// classicMarks allows Ring and Tree with all protocols, as NCCL does for AllReduce without multicast and CollNet.
func classicMarks(c actions.Collective) tuner.MarkSet {
	if c == actions.AllReduce {
		return 0b111_111
	}
	return 0b111_000
}

func (g *group) marks(buckets []state.Bucket) {
	for _, b := range buckets {
		g.step(tuner.Marks{Comm: comm, Bucket: b, Set: classicMarks(b.Collective)})
	}
}

func (g *group) run(buckets []state.Bucket, calls int) {
	for range calls {
		if g.seq%epochCalls == 0 && g.next != nil {
			g.force = map[state.Bucket]tuner.Entry{}
			for _, e := range g.next.Called() {
				g.force[e.Bucket] = e
			}
			g.next, g.running = nil, uint32(g.plans)
		}
		b := buckets[g.rng.IntN(len(buckets))]
		action := actions.Default
		if e, ok := g.force[b]; ok {
			if g.ids[b] != e.ID {
				g.ids[b], g.calls[b] = e.ID, 0
			}
			action = e.Base
			if g.calls[b] < len(e.Trials) {
				action = e.Trials[g.calls[b]]
			}
			g.calls[b]++
		}
		ns, ok := g.table.Cost(b, action)
		if !ok {
			g.t.Fatalf("no recorded cost of %v for %v", action, b)
		}
		g.cost[b] += ns
		ns *= math.Exp(0.05 * g.rng.NormFloat64())
		for r := range g.ranks {
			if g.rng.Float64() < g.lose {
				continue
			}
			g.step(&tuner.Sample{Comm: comm, Seq: g.seq, Rank: int32(r), Bucket: b, Bytes: 1 << b.Log2Bytes, Action: action,
				Plan: g.running, Ran: action, SignalNs: state.Ns(ns) + state.Ns(g.rng.IntN(2000)), CounterNs: state.Ns(ns / 2)})
		}
		fmt.Fprintf(&g.trace, "%d %v %v\n", g.seq, b, action)
		g.seq++
		if g.seq%tickCalls == 0 {
			g.step(tuner.Tick{})
		}
	}
}

// total is the cost of all calls since the last total over what NCCL's defaults would have taken: of the table now.
func (g *group) choiceOverBest(b state.Bucket) float64 {
	base := actions.Default
	if e, ok := g.force[b]; ok {
		base = e.Base
	}
	ns, _ := g.table.Cost(b, base)
	_, best, _ := g.table.Best(b)
	return ns / best
}

func load(t *testing.T, condition string) *tunersim.Table {
	t.Helper()
	f, err := os.Open("tunersim/testdata/measurements/h200x4-socket-2nodes-" + condition + ".csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table, err := tunersim.ReadTable(f)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func medianOver(g *group, buckets []state.Bucket) float64 {
	var xs []float64
	for _, b := range buckets {
		xs = append(xs, g.choiceOverBest(b))
	}
	slices.Sort(xs)
	return xs[len(xs)/2]
}

func TestLearnsAndFollowsTheFabric(t *testing.T) {
	for _, learner := range []string{"coordinate-descent", "ucb"} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("%s/%d", learner, seed), func(t *testing.T) {
				quiet, loaded := load(t, "quiet"), load(t, "network-load")
				buckets := quiet.Buckets()
				g := newGroup(t, learner, true, quiet, seed)
				g.join(tuner.CommJoined{Explore: true})
				g.marks(buckets)
				g.run(buckets, 200*len(buckets))
				if m := medianOver(g, buckets); m > 1.10 {
					t.Errorf("quiet: median cost %.3f of the best possible, want <= 1.10", m)
				}
				g.table = loaded
				g.run(buckets, 64*len(buckets))
				t.Logf("64 calls a bucket after the change: median %.3f of the best possible", medianOver(g, buckets))
				if m := medianOver(g, buckets); m > 1.10 {
					t.Errorf("network load: median cost %.3f of the best possible, want <= 1.10", m)
				}
				if len(g.findings) == 0 || len(g.learned) == 0 {
					t.Errorf("%d findings and %d learned choices: the change must be told and choices kept", len(g.findings), len(g.learned))
				}
				if d := g.core.Totals().Disagreed; d != 0 {
					t.Errorf("%d disagreements", d)
				}
			})
		}
	}
}

func TestSameSeedSamePlans(t *testing.T) {
	quiet := load(t, "quiet")
	var traces []string
	for range 2 {
		g := newGroup(t, "ucb", true, quiet, 7)
		g.lose = 0.01
		g.join(tuner.CommJoined{Explore: true})
		g.marks(quiet.Buckets())
		g.run(quiet.Buckets(), 2000)
		traces = append(traces, g.trace.String())
	}
	if traces[0] != traces[1] {
		t.Error("two runs from one seed differ")
	}
}

func TestNothingIsChosenWithoutMarks(t *testing.T) {
	quiet := load(t, "quiet")
	g := newGroup(t, "coordinate-descent", true, quiet, 1)
	g.join(tuner.CommJoined{Explore: true})
	g.run(quiet.Buckets(), 2000)
	if len(g.force) != 0 {
		t.Errorf("%d buckets are tuned although no rank said what NCCL allows", len(g.force))
	}
	b := quiet.Buckets()[0]
	g.step(tuner.Marks{Comm: comm, Bucket: b, Set: classicMarks(b.Collective), Differ: true})
	g.run(quiet.Buckets()[:1], 500)
	if len(g.force) != 0 || len(g.findings) != 1 {
		t.Errorf("ranks that differ: %d buckets tuned, %d findings; want 0 and 1", len(g.force), len(g.findings))
	}
}

// Marks that part later, and call numbers that nobody can have reached, are told and do not stop a communicator for good.
func TestRanksThatPartAndRanksThatLie(t *testing.T) {
	quiet := load(t, "quiet")
	b := quiet.Buckets()[0]
	g := newGroup(t, "coordinate-descent", true, quiet, 1)
	g.join(tuner.CommJoined{Explore: true})
	g.marks([]state.Bucket{b})
	g.run([]state.Bucket{b}, 100)
	for range 3 {
		g.step(tuner.Marks{Comm: comm, Bucket: b, Set: classicMarks(b.Collective), Differ: true})
	}
	if len(g.findings) != 1 {
		t.Errorf("%d findings after marks parted, want 1", len(g.findings))
	}
	g.marks([]state.Bucket{b})
	for i := range uint64(2000) {
		g.step(&tuner.Sample{Comm: comm, Seq: 1<<50 + i, Rank: 0, Bucket: b, SignalNs: 1})
	}
	before := g.core.Totals().Groups
	g.run([]state.Bucket{b}, 3000)
	if got := g.core.Totals().Groups - before; got < 1000 {
		t.Errorf("%d of 3000 calls were joined after one rank reported nonsense", got)
	}
	if len(g.findings) < 2 {
		t.Error("nobody was told")
	}
}

func TestNoExplorationWithoutProfiler(t *testing.T) {
	quiet := load(t, "quiet")
	b := quiet.Buckets()[0]
	best, bestNs, _ := quiet.Best(b)
	defNs, _ := quiet.Default(b)
	prior := []tuner.Learned{{Key: tuner.Key{Bucket: b}, Action: best, CostNs: bestNs, Default: defNs, Calls: 100,
		Evidence: map[actions.Action]tuner.Estimate{actions.Default: {N: 9, MeanNs: defNs}, best: {N: 9, MeanNs: bestNs}}}}
	g := newGroup(t, "coordinate-descent", true, quiet, 1)
	g.join(tuner.CommJoined{Explore: false, Prior: prior})
	g.marks(quiet.Buckets())
	g.lose = 1 // no profiler, no samples
	for range 10 {
		g.step(tuner.Tick{})
	}
	g.run(quiet.Buckets(), 200)
	if len(g.force) != 1 || g.force[b].Base != best || len(g.force[b].Trials) != 0 {
		t.Errorf("plan %+v, want the stored choice %v of %v and no trials", g.force, best, b)
	}
}

// A choice that is in force, or was learned before, is the base at once and stays only if it proves itself.
func TestGoesOnFromWhatWasInForce(t *testing.T) {
	quiet := load(t, "quiet")
	for _, tc := range []struct {
		name string
		want bool
		pick func(b state.Bucket) actions.Action
	}{
		{"the best stays", true, func(b state.Bucket) actions.Action { a, _, _ := quiet.Best(b); return a }},
		{"one that loses goes", false, func(b state.Bucket) actions.Action {
			return actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.Simple, Channels: 32}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 10}
			a := tc.pick(b)
			g := newGroup(t, "coordinate-descent", true, quiet, 2)
			g.join(tuner.CommJoined{Explore: true, InForce: map[state.Bucket]actions.Action{b: a}})
			g.marks([]state.Bucket{b})
			g.step(tuner.Tick{})
			if g.next == nil || len(g.next.Entries) != 1 || g.next.Entries[0].Base != a {
				t.Fatalf("first plan %+v, want base %v", g.next, a)
			}
			g.run([]state.Bucket{b}, 200)
			if kept := g.force[b].Base == a; kept != tc.want {
				t.Errorf("after 200 calls the base is %v, was %v", g.force[b].Base, a)
			}
		})
	}
}

func TestLostSamplesDelayButDoNotStop(t *testing.T) {
	quiet := load(t, "quiet")
	buckets := quiet.Buckets()
	g := newGroup(t, "coordinate-descent", true, quiet, 3)
	g.lose = 0.1
	g.join(tuner.CommJoined{Explore: true})
	g.marks(buckets)
	g.run(buckets, 600*len(buckets))
	if m := medianOver(g, buckets); m > 1.10 {
		t.Errorf("median cost %.3f of the best possible with a third of the calls lost, want <= 1.10", m)
	}
}

func TestEntryIDsGoOnAfterARestart(t *testing.T) {
	quiet := load(t, "quiet")
	g := newGroup(t, "coordinate-descent", true, quiet, 1)
	g.join(tuner.CommJoined{Explore: true, LastID: 41})
	g.marks(quiet.Buckets())
	g.step(tuner.Tick{})
	if g.next == nil || len(g.next.Entries) == 0 {
		t.Fatal("no plan")
	}
	for _, e := range g.next.Entries {
		if e.ID <= 41 {
			t.Errorf("entry of %v has id %d, which ranks may have seen before", e.Bucket, e.ID)
		}
	}
}

func BenchmarkStepSample(b *testing.B) {
	newLearner, _ := agents.New("coordinate-descent")
	core, err := tuner.New(tuner.Config{NewLearner: newLearner, Explore: true})
	if err != nil {
		b.Fatal(err)
	}
	bucket := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}
	core.Step(1, tuner.CommJoined{Comm: comm, Shape: state.Shape{Ranks: 8, Nodes: 1}, Explore: true})
	core.Step(1, tuner.Marks{Comm: comm, Bucket: bucket, Set: classicMarks(actions.AllReduce)})
	s := tuner.Sample{Comm: comm, Bucket: bucket, Bytes: 1 << 16}
	rng := rand.New(rand.NewPCG(1, 1))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Seq, s.Rank = uint64(i/8), int32(i%8)
		s.SignalNs = 50_000 + state.Ns(rng.IntN(5000))
		s.CounterNs = s.SignalNs / 2
		core.Step(state.Ns(i), &s)
	}
}
