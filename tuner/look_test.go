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
	callNs  state.Ns
	slower  float64 // what trees take longer than they did
}

func newRare(t *testing.T) *rare {
	t.Helper()
	core := coreOf(t, agents.NameUCB, Config{Explore: true, Guard: agents.DefaultGuardConfig(), WatchShare: 0.004}, CommJoined{})
	r := &rare{core: core, callNs: 1e5, slower: 1, b: state.Bucket{Collective: actions.AllReduce, Log2Bytes: 10}, rest: state.Bucket{Collective: actions.AllReduce, Log2Bytes: 24}}
	core.Step(0, Marks{Comm: 1, Bucket: r.b, Set: 0b111_111})
	return r
}

// run makes calls, every 24th of the rare size where present.
func (r *rare) run(calls int, present bool) {
	for range calls {
		r.seq++
		if now := state.Ns(r.seq) * r.callNs; r.seq%24 != 0 || !present {
			if r.seq%16 == 0 {
				r.core.Step(now, &Sample{Comm: 1, Seq: r.seq, Bucket: r.rest, Bytes: 1 << 24, SignalNs: 1e5, EventTimed: true, Plan: uint32(r.version)})
			}
		} else {
			r.calls++
			a := r.entry.Action(r.calls)
			r.made++
			ns := state.Ns(30_000)
			if isTree(a) {
				ns = state.Ns(15_000 * r.slower)
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
		for _, p := range r.core.Step(state.Ns(r.seq)*r.callNs, Tick{}).Plans {
			r.version++
			r.core.Step(state.Ns(r.seq)*r.callNs, Published{Comm: 1, Version: r.version})
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

// Where calls take long few are made in a second, and one of thousands would be seen after many. What slows is left all the same
// once some have been seen, by the clock.
func TestSlowSizeIsSeenSoon(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3} {
		r := newRare(t)
		r.callNs = 1e6
		r.run(int(20_000+1000*seed), true)
		if !isTree(r.entry.Base) {
			t.Fatalf("%s after %d calls", r.entry.Base, r.seq)
		}
		r.slower = 30
		const bound = 4000 // calls, of 1 ms
		calls := 0
		for ; isTree(r.entry.Base) && calls < 8*bound; calls += 100 {
			r.run(100, true)
		}
		if calls > bound {
			t.Errorf("%d calls of 1 ms passed until what had become 15 times as slow as NCCL's default was left", calls)
		}
	}
}
