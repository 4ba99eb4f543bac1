package tuner

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

// grapher is a program whose graphs replay one choice: ranks tell of each replay, the last to arrive after no wait.
type grapher struct {
	t      *testing.T
	core   *Core
	ranks  int
	number uint32
	rng    *rand.Rand
	now    state.Ns
	r      Replay
	found  []Finding
}

func newGrapher(t *testing.T, ranks int, seed uint64) *grapher {
	t.Helper()
	return graphsOf(t, kernelCore(t, Config{}, CommJoined{}), 1, ranks, seed)
}

// graphsOf is another communicator of a core.
func graphsOf(t *testing.T, core *Core, comm CommID, ranks int, seed uint64) *grapher {
	core.Step(1, CommLeft{Comm: comm})
	core.Step(1, CommJoined{Comm: comm, Shape: state.Shape{Ranks: ranks, Nodes: 1}})
	return &grapher{t: t, core: core, ranks: ranks, rng: rand.New(rand.NewPCG(seed, 3)), now: 1000,
		r: Replay{Comm: comm, Bucket: b64k, Bytes: 65536, Action: oneShot4, Ran: oneShot4}}
}

// replay tells of one replay that took so long, with 5% noise that signal and counter share in part.
func (g *grapher) replay(signalNs, counterNs float64) {
	g.now += 1000
	g.number += 64
	a, b := g.rng.NormFloat64(), g.rng.NormFloat64()
	signal := state.Ns(signalNs * math.Exp(0.05*a))
	counter := min(signal, state.Ns(counterNs*math.Exp(0.05*(0.6*a+0.8*b))))
	last := g.rng.IntN(g.ranks)
	for rank := range g.ranks {
		g.r.Number, g.r.Rank, g.r.SignalNs, g.r.CounterNs = g.number, int32(rank), signal, counter
		if rank != last {
			g.r.SignalNs += state.Ns(1 + g.rng.IntN(5000))
		}
		out := g.core.Step(g.now, &g.r)
		g.found = append(g.found, out.Findings...)
		if len(out.Plans)+len(out.Learned)+len(out.Watched) > 0 {
			g.t.Fatalf("a replay led to %+v", out)
		}
	}
}

func (g *grapher) view() ReplayView {
	g.t.Helper()
	views := slices.DeleteFunc(g.core.Replays(), func(v ReplayView) bool { return v.Comm != g.r.Comm })
	if len(views) != 1 {
		g.t.Fatalf("%d choices", len(views))
	}
	return views[0]
}

func within(got, want, share float64) bool { return math.Abs(got-want) <= share*want }

// What is told of a choice: how often and when it was seen, and what the shortest rank took.
func TestReplaysAreToldOf(t *testing.T) {
	g := newGrapher(t, 4, 1)
	for range 5000 {
		g.replay(10_000, 4_000)
	}
	v := g.view()
	if v.Comm != 1 || v.Shape.Ranks != 4 || v.Bucket != b64k || v.Bytes != 65536 || v.Choice != oneShot4 || v.Replays != 5000 || v.FirstNs != 2000 ||
		v.LastNs != g.now || v.Changes != 0 {
		t.Errorf("%+v", v)
	}
	if !within(v.Signal.MedianNs, 10_000, 0.03) || !within(v.Counter.MedianNs, 4_000, 0.03) || !within(v.Signal.MeanNs, 10_013, 0.005) ||
		!within(v.Counter.MeanNs, 4_005, 0.005) {
		t.Errorf("signal %+v, counter %+v", v.Signal, v.Counter)
	}
	if n := g.core.CountReplays(); n != (ReplayCounts{Replays: 5000, Choices: 1}) {
		t.Errorf("%+v", n)
	}
	totals := g.core.Totals()
	sums := totals.Replays.By[actions.AllReduce]
	if sums.Replays != 5000 || !within(float64(sums.SignalNs), 5000*10_013, 0.005) || !within(float64(sums.CounterNs), 5000*4_005, 0.005) || sums.Changes != 0 {
		t.Errorf("sums %+v", sums)
	}
	totals.Replays.By = ReplayTotals{}.By
	if want := (ReplayTotals{Samples: 20_000, Joined: 5000}); totals.Replays != want {
		t.Errorf("%+v, want %+v", totals.Replays, want)
	}
	g.core.Step(g.now, CommLeft{Comm: 1})
	if len(g.core.Replays()) != 0 || g.core.Totals().Replays.Joined != 5000 {
		t.Errorf("after the communicator left: %+v, %+v", g.core.Replays(), g.core.Totals().Replays)
	}
	g.core.Step(g.now, &g.r)
	if n := g.core.Totals().Replays.Unknown; n != 1 {
		t.Errorf("%d samples of communicators that are gone", n)
	}
}

// A counter that no rank measured is none; sizes and choices of one bucket stand by themselves, in order.
func TestReplaysOfSeveralChoices(t *testing.T) {
	g := newGrapher(t, 2, 2)
	big := actions.Action{Path: actions.PathLSA, Kernel: actions.Bulk, Channels: 64}
	gather := state.Bucket{Collective: actions.AllGather, Log2Bytes: 20}
	for _, r := range []Replay{{Bucket: b64k, Bytes: 98304, Action: oneShot4}, {Bucket: b64k, Bytes: 65536, Action: big},
		{Bucket: gather, Bytes: 1 << 20, Action: big}, {Bucket: b64k, Bytes: 65536, Action: oneShot4}} {
		g.r = r
		g.r.Comm = 1
		for range 3 {
			g.replay(float64(r.Bytes), 0)
		}
	}
	var got []Replay
	for _, v := range g.core.Replays() {
		got = append(got, Replay{Bucket: v.Bucket, Bytes: v.Bytes, Action: v.Choice})
		if v.Replays != 3 || !within(v.Signal.MedianNs, float64(v.Bytes), 0.2) || v.Counter != (ReplayCost{}) {
			t.Errorf("%+v", v)
		}
	}
	want := []Replay{{Bucket: gather, Bytes: 1 << 20, Action: big}, {Bucket: b64k, Bytes: 65536, Action: oneShot4}, {Bucket: b64k, Bytes: 65536, Action: big},
		{Bucket: b64k, Bytes: 98304, Action: oneShot4}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

// A step of 8% at 5% noise is found within some tens of replays, with the medians before and after it.
func TestReplaysThatChange(t *testing.T) {
	const runs = 100
	core := kernelCore(t, Config{}, CommJoined{}) // one for all: its thresholds take 40 ms
	for _, step := range []float64{1.08, 1 / 1.08, 1.5} {
		found, sum, most := 0, 0, 0
		for seed := range uint64(runs) {
			g := graphsOf(t, core, 1, 2, seed)
			for range 500 {
				g.replay(10_000, 4_000)
			}
			if g.view().Changes > 0 {
				continue // a false one, after a false alarm, which 500 replays have in one case of 200
			}
			at := g.now
			n := 0
			for g.view().Changes == 0 && n < 300 {
				g.replay(10_000*step, 4_000*step)
				n++
			}
			if n == 300 {
				continue
			}
			found, sum, most = found+1, sum+n, max(most, n)
			v := g.view()
			if c := v.Changed; c.AtNs <= at || c.AtNs > g.now || !within(c.Signal.BeforeNs, 10_000, 0.05) || !within(c.Signal.AfterNs, 10_000*step, 0.05) ||
				!within(c.Counter.BeforeNs, 4_000, 0.05) || !within(c.Counter.AfterNs, 4_000*step, 0.05) {
				t.Errorf("seed %d: %+v", seed, c)
			}
			if len(g.found) != 1 || g.found[0].Bucket != b64k || !strings.Contains(g.found[0].Text, "lsa/oneshot/4 in CUDA graphs") {
				t.Errorf("seed %d: findings %+v", seed, g.found)
			}
			for range 200 {
				g.replay(10_000*step, 4_000*step)
			}
			if v := g.view(); v.Changes != 1 || !within(v.Signal.MedianNs, 10_000*step, 0.03) || !within(v.Signal.MeanNs, 10_013*step, 0.01) || v.Replays != uint64(n+700) {
				t.Errorf("seed %d, later: %+v", seed, v)
			}
		}
		t.Logf("step to %.3f: %d of %d found after %.1f replays in the mean, %d at most", step, found, runs, float64(sum)/float64(max(found, 1)), most)
		if found < runs*98/100 || float64(sum) > 80*float64(found) || most > 120 {
			t.Errorf("step to %.3f: %d of %d found, %.1f replays in the mean, %d at most", step, found, runs, float64(sum)/float64(max(found, 1)), most)
		}
	}
}

// Quiet replays raise alarms as rarely as the detector says (one in 100,000), and what comes back to where it was is no
// change. Ten choices of 100,000 replays each, one of them through the whole core.
func TestQuietReplays(t *testing.T) {
	design, err := agents.NewDesign(agents.DefaultParams())
	if err != nil {
		t.Fatal(err)
	}
	const choices, each = 10, 100_000
	alarms, changes := 0, 0
	for seed := range uint64(choices - 1) {
		rng := rand.New(rand.NewPCG(seed, 4))
		all := replays{choices: map[replayKey]*replayed{}}
		p := all.of(replayKey{b64k, 65536, oneShot4}, design, 0)
		for i := range each {
			a, b := rng.NormFloat64(), rng.NormFloat64()
			alarm, changed := p.observe(state.Ns(i), replayCost{state.Ns(10_000 * math.Exp(0.05*a)), state.Ns(4_000 * math.Exp(0.05*b))}, rng)
			if alarm {
				alarms++
			}
			if changed {
				changes++
			}
		}
	}
	g := newGrapher(t, 2, 1)
	for range each {
		g.replay(10_000, 4_000)
	}
	totals := g.core.Totals().Replays
	t.Logf("one choice through the core: %d alarms and %d changes; all ten: %d and %d", totals.Alarms, totals.Changes, alarms+int(totals.Alarms), changes+int(totals.Changes))
	alarms, changes = alarms+int(totals.Alarms), changes+int(totals.Changes)
	if totals.Alarms > 4 || totals.Changes > 0 || alarms > choices+3*4 || changes > 1 { // Poisson, about three standard deviations above
		t.Errorf("%d alarms and %d changes in %d quiet replays", alarms, changes, choices*each)
	}
}

// Of a cost that comes back before it is judged the level stays, with all that was measured meanwhile.
func TestReplaysThatComeBack(t *testing.T) {
	g := newGrapher(t, 2, 7)
	for range 2000 {
		g.replay(10_000, 4_000)
	}
	before := g.core.Totals().Replays.Alarms
	for n := 0; g.core.Totals().Replays.Alarms == before; n++ {
		if n == 200 {
			t.Fatal("no alarm")
		}
		g.replay(13_000, 5_200)
	}
	for range 500 {
		g.replay(10_000, 4_000)
	}
	if v := g.view(); v.Changes != 0 || !within(v.Signal.MedianNs, 10_000, 0.03) || !within(v.Signal.MeanNs, 10_013, 0.01) || len(g.found) != 0 {
		t.Errorf("%+v, %+v", v, g.found)
	}
}

// A few nanoseconds are no change however sure they are.
func TestReplaysOfLittleChange(t *testing.T) {
	for _, c := range []struct {
		from, to float64
		want     bool
	}{{1000, 1049, false}, {1000, 1051, true}, {10_000, 10_299, false}, {10_000, 10_301, true}, {10_301, 10_000, true}, {1051, 1000, true}, {1000, 951, false}} {
		if got := moved(agents.Change{BeforeNs: c.from, AfterNs: c.to}); got != c.want {
			t.Errorf("%g to %g ns: %v", c.from, c.to, got)
		}
	}
	if moved(agents.Change{}) {
		t.Error("a counter that nobody measured has changed")
	}
}

// A sample of a level has the values of all of it, whatever came first, and repeats from run to run.
func TestLevelOfReplays(t *testing.T) {
	level := func() (l costLevel) {
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range 10_000 {
			l.add(replayCost{state.Ns(1 + i), state.Ns(i % 2)}, rng)
		}
		return l
	}
	l := level()
	signal, counter := l.costs()
	if l != level() || math.Abs(signal.MedianNs-5000) > 1500 || signal.MeanNs != 5000.5 || counter.MeanNs != 1 || counter.MedianNs != 1 || l.counted != 5000 {
		t.Errorf("signal %+v, counter %+v", signal, counter)
	}
	var few costLevel
	for _, ns := range []state.Ns{7, 1, 9} {
		few.add(replayCost{ns, 0}, nil)
	}
	if signal, counter := few.costs(); signal.MedianNs != 7 || counter != (ReplayCost{}) {
		t.Errorf("of three: %+v, %+v", signal, counter)
	}
	if signal, counter := (&costLevel{}).costs(); signal != (ReplayCost{}) || counter != (ReplayCost{}) {
		t.Errorf("of none: %+v, %+v", signal, counter)
	}
}

// Whatever broken processes write, memory stays bounded and every sample is counted.
func TestReplaysOfGarbage(t *testing.T) {
	core := kernelCore(t, Config{}, CommJoined{})
	rng := rand.New(rand.NewPCG(5, 6))
	const samples = 300_000
	for i := range samples {
		r := Replay{Comm: CommID(rng.IntN(2)), Number: uint32(i / 4), Rank: int32(i % 4), Bucket: state.Bucket{Collective: actions.Collective(rng.IntN(8)),
			Log2Bytes: uint8(rng.IntN(50))}, Bytes: uint64(i / 4), SignalNs: state.Ns(rng.IntN(100)), CounterNs: state.Ns(rng.IntN(3)), Action: oneShot4}
		switch rng.IntN(4) {
		case 0:
			r.Number = rng.Uint32()
		case 1:
			r.Rank = int32(rng.Uint32())
		case 2: // all ranks tell the same: another choice each time
			r.Comm, r.Bucket, r.SignalNs, r.CounterNs = 1, state.Bucket{Collective: actions.AllGather, Log2Bytes: uint8(i / 4 % 48)}, 50, 0
		}
		core.Step(state.Ns(i), &r)
		if m := core.comms[1].replays; m != nil && (len(m.joiner.at) != len(m.joiner.open) || len(m.joiner.open) > replayWindow) {
			t.Fatalf("%d open, %d by number", len(m.joiner.open), len(m.joiner.at))
		}
	}
	for i := range uint32(16 * maxReplayed) { // late until joining begins anew
		core.Step(samples, &Replay{Comm: 1, Number: 1<<31 + i/4, Rank: int32(i % 4), Bucket: b64k, Bytes: uint64(i / 4), Action: oneShot4, SignalNs: 5})
	}
	m, totals := core.comms[1].replays, core.Totals()
	if len(m.choices) != maxReplayed || len(core.Replays()) != maxReplayed {
		t.Errorf("%d choices", len(m.choices))
	}
	if r := totals.Replays; r.Samples != samples+16*maxReplayed || r.Late == 0 || r.Unknown == 0 || r.Incomplete == 0 || r.Disagreed == 0 || r.Unkept == 0 || r.Joined < r.Unkept {
		t.Errorf("%+v", r)
	}
	totals.Replays = ReplayTotals{}
	if totals != (Totals{}) {
		t.Errorf("calls: %+v", totals)
	}
}

// A program that captures other sizes for months: graphs of which nothing is heard any more make room for those that run, which keep theirs.
func TestReplaysOfGraphsThatAreGone(t *testing.T) {
	g := newGrapher(t, 2, 5)
	always := g.r.Bytes
	for i := range uint64(3 * maxReplayed) {
		g.r.Bytes = always
		g.replay(4000, 2000)
		g.r.Bytes = always + 4 + 4*i
		g.replay(4000, 2000)
		g.now += goneReplayedNs / (maxReplayed / 2)
	}
	if r := g.core.Totals().Replays; r.Unkept != 0 || r.Joined != 6*maxReplayed {
		t.Errorf("%+v", r)
	}
	views := g.core.Replays()
	if len(views) != maxReplayed || views[0].Bytes != always || views[0].Replays != 3*maxReplayed || views[maxReplayed-1].Bytes != g.r.Bytes {
		t.Errorf("%d choices, of %d bytes with %d replays to %d bytes", len(views), views[0].Bytes, views[0].Replays, views[len(views)-1].Bytes)
	}
	for i := range uint64(maxReplayed) { // more at once than there is room for: the first ones keep theirs
		g.r.Bytes = always + 100_000 + 4*i
		g.replay(4000, 2000)
	}
	if r := g.core.Totals().Replays; r.Unkept == 0 {
		t.Errorf("graphs that run made room: %+v", r)
	}
}

func TestReplaysAllocateNothing(t *testing.T) {
	g := newGrapher(t, 4, 1)
	for range 3 * replayWindow {
		g.replay(10_000, 4_000)
	}
	if n := testing.AllocsPerRun(1000, func() { g.replay(10_000, 4_000) }); n >= 1 {
		t.Errorf("%v allocations a replay", n)
	}
}
