package tuner

import (
	"slices"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

// rare plays a communicator one of whose sizes is in no sampled epoch: of it ranks time trials alone.
type rare struct {
	core    *Core
	b, rest state.Bucket
	entry   Entry
	calls   int // of the entry
	seq     uint64
	made    uint16
	version uint64
	entries int // with trials
	lose    int // the samples of so many of these are lost
}

func newRare(t *testing.T) *rare {
	newLearner, err := agents.New(agents.NameUCB)
	if err != nil {
		t.Fatal(err)
	}
	core, err := New(Config{NewLearner: newLearner, Explore: true, Seed: 1, Guard: agents.DefaultGuardConfig(), WatchShare: 0.004})
	if err != nil {
		t.Fatal(err)
	}
	r := &rare{core: core, b: state.Bucket{Collective: actions.AllReduce, Log2Bytes: 10}, rest: state.Bucket{Collective: actions.AllReduce, Log2Bytes: 24}}
	core.Step(0, CommJoined{Comm: 1, Shape: state.Shape{Ranks: 1, Nodes: 2}, EventTimed: true, Explore: true})
	core.Step(0, Marks{Comm: 1, Bucket: r.b, Set: 0b111_111})
	return r
}

// run makes calls, every 24th of the rare size where present.
func (r *rare) run(calls int, present bool) {
	for range calls {
		r.seq++
		if now := state.Ns(r.seq * 1e5); r.seq%24 != 0 || !present {
			if r.seq%16 == 0 {
				r.core.Step(now, &Sample{Comm: 1, Seq: r.seq, Bucket: r.rest, Bytes: 1 << 24, SignalNs: 1e5, EventTimed: true, Plan: uint32(r.version)})
			}
		} else {
			r.calls++
			a := r.entry.Action(r.calls)
			r.made++
			ns := state.Ns(30_000)
			if isTree(a) {
				ns = 15_000
			}
			said := 0
			if r.entry.ID != 0 {
				said = min(r.calls, 255)
			}
			if r.made < 8 || r.calls > r.entry.Skip && r.calls <= r.entry.Skip+len(r.entry.Trials) && r.entries > r.lose {
				r.core.Step(now, &Sample{Comm: 1, Seq: r.seq, Bucket: r.b, Bytes: 1 << 10, Action: a, Ran: a, SignalNs: ns, EventTimed: true, Made: r.made,
					Plan: uint32(r.version), EntryCall: uint8(said)})
			}
		}
		for _, p := range r.core.Step(state.Ns(r.seq*1e5), Tick{}).Plans {
			r.version++
			r.core.Step(state.Ns(r.seq*1e5), Published{Comm: 1, Version: r.version})
			if e := entryOf([]Plan{p}, r.b); e.ID != r.entry.ID {
				r.entry, r.calls = Entry{ID: e.ID, Base: e.Base, Skip: e.Skip, Trials: slices.Clone(e.Trials)}, 0
				if len(e.Trials) > 0 {
					r.entries++
				}
			}
		}
	}
}

func isTree(a actions.Action) bool {
	return a.Path == actions.PathCollective && a.Algorithm == actions.Tree
}

// Neither lost samples nor being rare keeps a size from its choice; one that is called no more is left alone.
func TestRareSizeIsNotForgotten(t *testing.T) {
	r := newRare(t)
	r.lose = 2
	r.run(200_000, true)
	if !isTree(r.entry.Base) {
		t.Errorf("%s after 200,000 calls and %d entries with trials, the first two of which were lost", r.entry.Base, r.entries)
	}
	entries := r.entries
	r.run(100_000, true)
	if now := r.entries - entries; now < 3 || now > 40 {
		t.Errorf("%d looks in 100,000 calls of a size that nobody samples", now)
	}
	entries = r.entries
	r.run(1_000_000, false)
	if now := r.entries - entries; now > 8 {
		t.Errorf("%d entries with trials in 1,000,000 calls without any of their size", now)
	}
}
