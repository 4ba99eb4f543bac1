package nccltuner

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// storedActions is what a store may hold: of every path, and more of them than a plan has entries.
func storedActions() (all []actions.Action) {
	for n := uint8(1); n <= 32; n++ {
		all = append(all, actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL, Channels: n},
			actions.Action{Path: actions.PathCollective, Algorithm: actions.Tree, Protocol: actions.Simple, Channels: n},
			actions.Action{Path: actions.PathLSA, Kernel: actions.OneShot, Channels: n}, actions.Action{Path: actions.PathSymmetric, Symmetric: actions.SymmetricAGxLL})
	}
	return append(all, actions.Default)
}

// The core knows what a plan has room for (tuner's planRoom), and so does who writes it (settledOn): whatever the core publishes is
// written, with as many buckets that try something, and settle on as many bases, as a store and a program may bring about.
func TestWhatTheCorePublishesHasRoom(t *testing.T) {
	newLearner, err := agents.New(agents.NameUCB)
	if err != nil {
		t.Fatal(err)
	}
	stored := storedActions()
	var all []state.Bucket
	for c := range actions.Collective(NumCollectives) {
		for log2 := range uint8(14) {
			all = append(all, state.Bucket{Collective: c, Log2Bytes: 10 + log2})
		}
	}
	most, shared, tried := uint32(0), false, 0
	rapid.Check(t, func(t *rapid.T) {
		core, err := tuner.New(tuner.Config{NewLearner: newLearner, Explore: true, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		now, version := state.Ns(0), uint64(0)
		latest := map[state.Bucket]tuner.Entry{}
		step := func(e tuner.Event) {
			now++
			for _, p := range core.Step(now, e).Plans {
				var to ABIPlan
				if err := encodePlan(&to, specOf(&p)); err != nil {
					t.Fatalf("a plan of %d entries: %v", len(p.Entries), err)
				}
				most, shared = max(most, to.NumEntries), shared || len(p.Entries) >= int(to.NumEntries)
				clear(latest)
				for _, e := range p.Entries {
					latest[e.Bucket] = tuner.Entry{Base: e.Base, Trials: slices.Clone(e.Trials)}
					tried = max(tried, len(e.Trials))
				}
				version++
				core.Step(now, tuner.Published{Comm: p.Comm, Version: version})
			}
		}
		buckets := func(what string) []state.Bucket {
			return rapid.Permutation(all).Draw(t, what)[:rapid.SampledFrom([]int{0, 20, 60, 80, len(all)}).Draw(t, what+", so many")]
		}
		bases := rapid.SampledFrom(stored[:rapid.SampledFrom([]int{1, 20, 60, len(stored)}).Draw(t, "bases")])
		join := tuner.CommJoined{Comm: 1, Shape: state.Shape{Ranks: 2, Nodes: 1}, Explore: true, EventTimed: true, InForce: map[state.Bucket]actions.Action{}}
		for _, b := range buckets("stored") {
			join.Prior = append(join.Prior, tuner.Learned{Key: tuner.Key{Bucket: b}, Action: bases.Draw(t, "choice"), Calls: 9, CostNs: 500, Default: float64(500 + len(join.Prior))})
			if rapid.Bool().Draw(t, "in force") {
				join.InForce[b] = bases.Draw(t, "base")
			}
		}
		step(join)
		step(tuner.Tick{})
		if rapid.Bool().Draw(t, "kernels") {
			step(tuner.KernelsOpen{Comm: 1})
		}
		called := buckets("called")
		for i, b := range called {
			step(tuner.Marks{Comm: 1, Bucket: b, Set: 0b111_111 | tuner.MarkOneShot, Differ: rapid.IntRange(0, 9).Draw(t, "differ") == 0})
			if i%8 == 0 {
				step(tuner.Tick{})
			}
		}
		step(tuner.Tick{})
		// Some make their calls, so that they settle while others still try.
		seq := uint64(0)
		for _, b := range called[:min(len(called), rapid.SampledFrom([]int{0, 4, 8}).Draw(t, "make calls"))] {
			for range 10 {
				e := latest[b]
				for _, a := range append(slices.Clone(e.Trials), e.Base) {
					for rank := range int32(2) {
						step(&tuner.Sample{Comm: 1, Seq: seq, Rank: rank, Bucket: b, Bytes: 1 << b.Log2Bytes, Action: a, Ran: a, Plan: uint32(version), SignalNs: 9000 - 100*state.Ns(a.Channels), CounterNs: 5000})
					}
					seq++
				}
				step(tuner.Tick{})
			}
		}
	})
	if most != NumEntries || !shared || tried == 0 {
		t.Errorf("the fullest plan has %d entries of %d, shared: %v, at most %d trials: nothing was filled", most, NumEntries, shared, tried)
	}
}

// specOf is what a daemon makes of a plan.
func specOf(p *tuner.Plan) *PlanSpec {
	spec := &PlanSpec{SampleEvery: uint32(p.SampleEvery)}
	for _, e := range p.Entries {
		entry := EntrySpec{Bucket: e.Bucket, ID: e.ID, Base: e.Base.Word()}
		for _, a := range e.Trials {
			entry.Trials = append(entry.Trials, a.Word())
		}
		spec.Entries = append(spec.Entries, entry)
	}
	return spec
}
