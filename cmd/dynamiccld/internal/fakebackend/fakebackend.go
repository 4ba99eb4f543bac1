package fakebackend

import (
	"context"
	"errors"
	"sync"
	"time"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// Now is the wall clock of tests.
var Now = time.Date(2026, 3, 4, 15, 30, 0, 0, time.UTC)

// Backend answers what its fields say.
type Backend struct {
	mu       sync.Mutex
	state    control.Status
	views    []tuner.BucketView
	findings []tuner.Finding
	alarms   []tuner.Alarmed
	replays  []tuner.ReplayView
	links    []tuner.LinkView
	imported []actions.Rule
	err      error
	block    bool
}

// ErrRefused is what Backend answers after Refuse.
var ErrRefused = errors.New("the core refuses")

// Refuse makes every answer an error.
func (b *Backend) Refuse() { b.mu.Lock(); b.err = ErrRefused; b.mu.Unlock() }

// Block makes every answer wait for its context.
func (b *Backend) Block() { b.mu.Lock(); b.block = true; b.mu.Unlock() }

// Imported is what Import was given last.
func (b *Backend) Imported() []actions.Rule { b.mu.Lock(); defer b.mu.Unlock(); return b.imported }

func (b *Backend) answer(ctx context.Context) error {
	b.mu.Lock()
	err, block := b.err, b.block
	b.mu.Unlock()
	if block {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

// Status implements control.Backend.
func (b *Backend) Status(ctx context.Context) (control.Status, error) {
	return b.state, b.answer(ctx)
}

// Buckets implements control.Backend.
func (b *Backend) Buckets(ctx context.Context) ([]tuner.BucketView, error) {
	return b.views, b.answer(ctx)
}

// Findings implements control.Backend.
func (b *Backend) Findings(ctx context.Context) ([]tuner.Finding, error) {
	return b.findings, b.answer(ctx)
}

// Alarms implements control.Backend.
func (b *Backend) Alarms(ctx context.Context) ([]tuner.Alarmed, error) {
	return b.alarms, b.answer(ctx)
}

// Replays implements control.Backend.
func (b *Backend) Replays(ctx context.Context) ([]tuner.ReplayView, error) {
	return b.replays, b.answer(ctx)
}

// Links implements control.Backend.
func (b *Backend) Links(ctx context.Context) ([]tuner.LinkView, error) {
	return b.links, b.answer(ctx)
}

// Ran implements control.Backend: every run is said to own all communicators.
func (b *Backend) Ran(ctx context.Context, _ uint64) (control.RunView, error) {
	var out control.RunView
	if len(b.state.Comms) > 0 {
		out.Traffic = &control.Traffic{LongBytes: 4 << 30, MovedBytes: 3 << 30, Together: 12_345}
	}
	for _, s := range b.state.Comms {
		c := control.CommView{Status: s}
		for _, v := range b.views {
			if control.CommID(v.Comm) == s.ID {
				c.Views = append(c.Views, v)
			}
		}
		for _, v := range b.replays {
			if control.CommID(v.Comm) == s.ID {
				c.Replays = append(c.Replays, v)
			}
		}
		out.Comms = append(out.Comms, c)
	}
	return out, b.answer(ctx)
}

// Import implements control.Backend.
func (b *Backend) Import(ctx context.Context, rules []actions.Rule, _ []actions.Refusal) error {
	if err := b.answer(ctx); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.imported = rules
	return nil
}

// Empty is a daemon that no rank has met.
func Empty() *Backend {
	return &Backend{state: control.Status{PID: 4242, Version: "v1.2.3", StartedAt: Now.Add(-2 * time.Hour), Dir: "/run/dynamiccl",
		StorePath: "/var/lib/dynamiccl/store.db", StoreState: "ok", Learner: "lstm", Explore: true, NowNs: ns(2 * time.Hour)}}
}

// Busy is a daemon with three communicators, of which it tunes one, and another host's daemon one.
func Busy() *Backend {
	b := Empty()
	b.state.Samples, b.state.Dropped, b.state.Unjoined = 123_456, 7, 3
	b.state.Decisions, b.state.Ignored, b.state.Publications = 98_765, 1, 12
	b.state.FindingCounts = map[string]uint64{"congestion": 2, "slow-rank": 1, "none": 0}
	b.state.Comms = []control.CommStatus{
		{ID: "00000000deadbeef", Nodes: 1, RanksJoined: 8, Ranks: 8, Transport: "nvlink", NCCLVersion: "2.30.7", Active: true, Epoch: 640, PlanVersion: 9, Calls: 10_240,
			Processes: []int{101, 102, 103, 104, 105, 106, 107, 108}},
		{ID: "0000000000c0ffee", Nodes: 2, RanksJoined: 2, Ranks: 4, Hosts: "apart", Why: "2 of 4 ranks have joined on this host", Processes: []int{101, 102}},
		{ID: "0000000000facade", Nodes: 2, RanksJoined: 2, Ranks: 4, Transport: "socket", NCCLVersion: "2.30.7", Hosts: "met", Follows: true, PlanVersion: 7, PlanAgreed: 7, Epoch: 640,
			Calls: 10_240, Why: "the daemon of rank 0's host tunes it: plan 7 is in force", Processes: []int{103, 104}},
	}
	ring, tree := action("Ring/LL128/24"), action("Tree/Simple")
	b.views = []tuner.BucketView{
		{Comm: 0xdeadbeef, Shape: shape8, Bucket: state.Bucket{Collective: actions.AllGather, Log2Bytes: 22}, Choice: ring, SinceNs: ns(90 * time.Minute),
			SpeedUp: 1.392, SpeedUpLow: 1.37, SpeedUpHigh: 1.414, Calls: 20_000, MeasuredNs: ns(80 * time.Minute),
			Ledger:  tuner.Ledger{Calls: 9_500, DefaultNs: 330e6, SavedNs: 88e6, TrialNs: 0.3e6, Trials: 12},
			Choices: []tuner.ActionView{measured(actions.Default, 500, 34_800, 0.0009), measured(ring, 9_000, 25_000, 0.0004), measured(tree, 12, 61_000, 0.0025)}},
		{Comm: 0xdeadbeef, Shape: shape8, Bucket: state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}, Choice: actions.Default, SinceNs: ns(10 * time.Minute),
			SpeedUp: 1, SpeedUpLow: 1, SpeedUpHigh: 1, Calls: 4_000, Diagnosis: agents.DiagnosisCongestion, DiagnosisNs: ns(110 * time.Minute), DiagnosedBefore: true, MeasuredNs: ns(112 * time.Minute),
			CusumCounter: 0.12, CusumSignal: 0.4, Exploring: true, Choices: []tuner.ActionView{measured(actions.Default, 300, 11_700, 0.0016)}},
		{Comm: 0xdeadbeef, Shape: shape8, Bucket: state.Bucket{Collective: actions.AllReduce, Log2Bytes: 17}, Choice: tree, SinceNs: ns(119 * time.Minute),
			SpeedUp: 1.25, SpeedUpLow: 1.1, SpeedUpHigh: 1.42, Ledger: tuner.Ledger{Calls: 200, DefaultNs: 2.5e6, SavedNs: 0.25e6, TrialNs: -0.01e6, Trials: 9}, Expected: 1.19, ExpectedSD: 0.07, Calls: 900, Diagnosis: agents.DiagnosisSlowRank, DiagnosisNs: ns(119*time.Minute + 50*time.Second),
			Choices: []tuner.ActionView{measured(actions.Default, 100, 12_500, 0.01), measured(tree, 100, 10_000, 0.01)}},
		{Comm: 0xc0ffee, Shape: state.Shape{Ranks: 4, Nodes: 2}, Bucket: state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}, Choice: actions.Default,
			SpeedUp: 1, SpeedUpLow: 1, SpeedUpHigh: 1, Calls: 10, Note: "not tuned: 2 of 4 ranks have joined on this host"},
	}
	b.replays = graphs()
	b.state.Graphs = control.GraphsOf(tuner.ReplayCounts{Replays: 1_040, Choices: len(b.replays), Changed: 1})
	b.state.Core.Replays = tuner.ReplayTotals{Samples: 8_400, Joined: 1_040, Incomplete: 3, Late: 5, Alarms: 2, Changes: 1}
	b.links = links()
	b.state.Links = control.LinksOf(tuner.LinkCounts{Trips: 4_400, Links: len(b.links), Changed: 1})
	b.state.Core.Trips = tuner.TripTotals{Samples: 4_420, Joined: 4_400, Incomplete: 12, Rejected: 8, Alarms: 1, Changes: 1, SignalNs: 46_200_000, CounterNs: 24_640_000, Counters: 4_400}
	b.alarms = []tuner.Alarmed{{Comm: 0xdeadbeef, Bucket: b.views[1].Bucket, AtNs: ns(110*time.Minute) - ns(1500*time.Millisecond), Up: true, BySignal: true}}
	b.findings = []tuner.Finding{
		{Comm: 0xdeadbeef, Bucket: b.views[1].Bucket, AtNs: ns(110 * time.Minute), Diagnosis: agents.DiagnosisCongestion, Text: "costs grow with bytes, 1.31x at 64 KiB"},
		{Comm: 0xdeadbeef, Bucket: b.views[2].Bucket, AtNs: ns(119*time.Minute + 50*time.Second), Diagnosis: agents.DiagnosisSlowRank, Text: "rank 3 is late by 40 us in 31 of 32 calls"},
	}
	return b
}

// graphs hold two choices of one size, of which one's cost has changed, and one of a size that no call outside of graphs has.
func graphs() []tuner.ReplayView {
	us := func(signal, counter float64) (s, c tuner.ReplayCost) {
		return tuner.ReplayCost{MedianNs: 1e3 * signal, MeanNs: 1e3 * signal * 1.01}, tuner.ReplayCost{MedianNs: 1e3 * counter, MeanNs: 1e3 * counter * 1.01}
	}
	view := func(c actions.Collective, bytes uint64, choice string, replays uint64, signal, counter float64) tuner.ReplayView {
		bucket, _ := state.BucketOf(c, bytes)
		v := tuner.ReplayView{Comm: 0xdeadbeef, Shape: shape8, Bucket: bucket, Bytes: bytes, Choice: action(choice), Replays: replays,
			FirstNs: ns(30 * time.Minute), LastNs: ns(2*time.Hour - 3*time.Second)}
		v.Signal, v.Counter = us(signal, counter)
		return v
	}
	gather, changed := view(actions.AllGather, 8<<10, "lsa/oneshot/1", 40, 3.02, 0), view(actions.AllReduce, 64<<10, "lsa/oneshot/4", 900, 3.98, 2.1)
	changed.Changes = 1
	changed.Changed = tuner.ReplayChange{AtNs: ns(110 * time.Minute), Signal: agents.Change{BeforeNs: 3_610, AfterNs: 3_980},
		Counter: agents.Change{BeforeNs: 2_000, AfterNs: 2_100}}
	return []tuner.ReplayView{gather, changed, view(actions.AllReduce, 96<<10, "lsa/twoshot/16", 100, 4.41, 1.7)}
}

// links are both ways of a pair, of which one has changed.
func links() []tuner.LinkView {
	cost := func(us float64) tuner.ReplayCost {
		return tuner.ReplayCost{MedianNs: 1e3 * us, MeanNs: 1e3 * us * 1.01}
	}
	there := tuner.LinkView{Comm: 0xdeadbeef, Shape: shape8, Rank: 0, Peer: 1, Context: 2, Backend: actions.BackendGDAKI, Trips: 2_200, FirstNs: ns(30 * time.Minute),
		LastNs: ns(2*time.Hour - 3*time.Second), Verdict: agents.Verdict{Rank: -1, Signal: 1},
		Sizes: []tuner.LinkSize{{Log2Bytes: 0, Trips: 200, Signal: cost(9.8)}, {Log2Bytes: 12, Trips: 2_000, Signal: cost(10.9), Counter: cost(6.1)}}}
	back := there
	back.Rank, back.Peer, back.ChangedNs = 1, 0, ns(110*time.Minute)
	back.Verdict = agents.Verdict{Diagnosis: agents.DiagnosisBackendFallback, Rank: -1, Buckets: 2, Calls: 40, Signal: 1.13, Counter: 1.21, AddedNs: 1300, AtBytes: 512}
	back.Saturated = []tuner.Saturation{{Bytes: 16 << 10, CTAs: 4, More: 8, MeanNs: 14_300, MoreNs: 26_900}}
	back.Sizes = []tuner.LinkSize{{Log2Bytes: 12, Trips: 900, Signal: cost(12.2), Counter: cost(7.4)}}
	return []tuner.LinkView{there, back}
}

var shape8 = state.Shape{Ranks: 8, Nodes: 1, Transport: "nvlink"}

func ns(d time.Duration) state.Ns { return state.Ns(d) }

func action(s string) actions.Action {
	a, err := actions.Parse(s)
	if err != nil {
		panic(err)
	}
	return a
}

func measured(a actions.Action, n int, meanNs, varLog float64) tuner.ActionView {
	return tuner.ActionView{Action: a, Estimate: tuner.Estimate{N: n, MeanNs: meanNs, VarLog: varLog}}
}
