package tuner

import (
	"slices"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

// A bucket has GIN by the backend that all ranks have, with CTAs up to the first number that covers its smallest call in one
// pass, also on one context where several were granted, on any number of nodes; where only NCCL's kernels are timed it has none. Nothing else of the set is touched.
func TestGINOfASet(t *testing.T) {
	rings := MarkSet(0b111_000)
	for _, c := range []struct {
		log2  uint8
		marks MarkSet
		want  string
	}{
		{10, MarkProxy, "gin/proxy/1"},
		{11, MarkProxy, "gin/proxy/1"},
		{12, MarkGDAKI, "gin/gdaki/1 gin/gdaki/2"},
		{14, MarkProxy, "gin/proxy/1 gin/proxy/2 gin/proxy/4 gin/proxy/8"},
		{30, MarkProxy, "gin/proxy/1 gin/proxy/2 gin/proxy/4 gin/proxy/8 gin/proxy/16"},
		{30, MarkGDAKI | MarkContexts, "gin/gdaki/1 gin/gdaki/2 gin/gdaki/4 gin/gdaki/4/c1 gin/gdaki/8 gin/gdaki/8/c1 gin/gdaki/16 gin/gdaki/16/c1"},
		{12, MarkGDAKI | MarkContexts, "gin/gdaki/1 gin/gdaki/2"}, // nothing to share
		{30, MarkContexts, ""},
		{12, MarkOneShot | MarkProxy, "lsa/oneshot/1 lsa/oneshot/4 gin/proxy/1 gin/proxy/2"},
		{20, 0, ""},
	} {
		for _, collective := range []actions.Collective{actions.AllReduce, actions.AllToAll} {
			b := state.Bucket{Collective: collective, Log2Bytes: c.log2}
			for _, nodes := range []int{1, 2} {
				with, without := Choices(b, rings|c.marks, 2, state.Shape{Ranks: 2, Nodes: nodes}, true), Choices(b, rings, 2, state.Shape{Ranks: 2, Nodes: nodes}, true)
				if !slices.Equal(with[:len(without)], without) || names(with[len(without):]) != c.want {
					t.Errorf("2^%d, marks %x: %s, want %s", c.log2, c.marks, names(with[len(without):]), c.want)
				}
				if slices.ContainsFunc(Choices(b, rings|c.marks, 2, state.Shape{Ranks: 2, Nodes: nodes}, false), actions.Action.Ours) {
					t.Errorf("2^%d: our kernels are to be measured by NCCL's events", c.log2)
				}
			}
		}
	}
}

// Where nodes have several ranks kernels are hierarchical, with at most 8 channels and no contexts to share, or flat, with all that flat
// ones have.
func TestGINOnRails(t *testing.T) {
	const flat = "gin/proxy/1 gin/proxy/2 gin/proxy/4 gin/proxy/4/c1 gin/proxy/8 gin/proxy/8/c1 gin/proxy/16 gin/proxy/16/c1"
	const both = "gin/proxy/1 gin/proxy/1/flat gin/proxy/2 gin/proxy/2/flat gin/proxy/4 gin/proxy/4/flat gin/proxy/4/c1/flat gin/proxy/8 gin/proxy/8/flat " +
		"gin/proxy/8/c1/flat gin/proxy/16/flat gin/proxy/16/c1/flat"
	for _, c := range []struct {
		collective actions.Collective
		shape      state.Shape
		want       string
	}{
		{actions.AllToAll, state.Shape{Ranks: 4, Nodes: 2}, both},
		{actions.ReduceScatter, state.Shape{Ranks: 6, Nodes: 3}, both},
		{actions.AllReduce, state.Shape{Ranks: 4, Nodes: 2}, both},
		{actions.AllToAll, state.Shape{Ranks: 4, Nodes: 4}, flat},
		{actions.AllToAll, state.Shape{Ranks: 4, Nodes: 1}, flat},
	} {
		set := Choices(state.Bucket{Collective: c.collective, Log2Bytes: 20}, MarkProxy|MarkContexts, 2, c.shape, true)
		if set[0] != actions.Default || names(set[1:]) != c.want {
			t.Errorf("%v, %+v: %v", c.collective, c.shape, set)
		}
	}
	small := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 17} // below actions.GINSlotBytes there is one kernel
	if set := Choices(small, MarkProxy|MarkContexts, 2, state.Shape{Ranks: 4, Nodes: 2}, true); names(set[1:]) != flat {
		t.Errorf("AllReduce of 128 KiB: %v", set)
	}
}

// Which of the two is faster is learned, and learned anew where that changes.
func TestFlatOrHierarchicalIsLearned(t *testing.T) {
	for _, name := range []string{agents.NameUCB, agents.NameCoordinateDescent, agents.NameLSTM} {
		p := newCaller(t, name, Config{Explore: true, Guard: agents.DefaultGuardConfig(), SampleEvery: 1}, CommJoined{Shape: state.Shape{Ranks: 4, Nodes: 2}},
			state.Bucket{Collective: actions.AllToAll, Log2Bytes: 14}, MarkGDAKI)
		p.ranks = 4
		seq := uint64(0)
		run := func(calls int, flatUs, hierarchicalUs float64) actions.Action {
			for range calls {
				a := p.next()
				us := 40.0
				if a.Path == actions.PathGIN {
					if us = hierarchicalUs; a.Flat {
						us = flatUs
					}
					us += 0.1 * float64(a.Channels)
				}
				now := state.Ns(seq * 1e6)
				p.tell(now, seq, a, a, state.Ns(us*1000*(1+0.02*float64(seq%3))))
				p.tick(now)
				seq++
			}
			return p.entry.Base
		}
		if got := run(2000, 10, 16); got.Path != actions.PathGIN || !got.Flat {
			t.Errorf("%s: %s where flat kernels take 10 us and hierarchical ones 16", name, got)
		}
		if got := run(4000, 30, 16); got.Path != actions.PathGIN || got.Flat {
			t.Errorf("%s: %s where flat kernels have come to take 30 us and hierarchical ones take 16", name, got)
		}
	}
}

// What is learned of GIN comes into force as any choice does, and is not in a first plan before the ranks say that they can.
func TestGINIsLearned(t *testing.T) {
	b := state.Bucket{Collective: actions.AllToAll, Log2Bytes: 14}
	core := kernelCore(t, Config{Explore: true}, CommJoined{})
	core.Step(1, Marks{Comm: 1, Bucket: b, Set: MarkProxy})
	var entry Entry
	seq := uint64(0)
	version := uint32(0)
	call := func(a actions.Action) {
		ns := state.Ns(20_000)
		if a.Path == actions.PathGIN {
			ns = 9_000 + state.Ns(a.Channels)*100
		}
		for r := range int32(4) {
			core.Step(state.Ns(seq), &Sample{Comm: 1, Seq: seq, Rank: r, Bucket: b, Bytes: 20_000, Plan: version, Action: a, Ran: a,
				SignalNs: ns, CounterNs: ns, EventTimed: true, Made: uint16(seq)})
		}
		seq++
	}
	for range 120 {
		if plans := core.Step(state.Ns(seq), Tick{}).Plans; len(plans) > 0 {
			entry = entryOf(plans, b)
			version++
			core.Step(state.Ns(seq), Published{Comm: 1, Version: uint64(version)})
			for _, a := range entry.Trials {
				call(a)
			}
		}
		for range 20 {
			call(entry.Base)
		}
	}
	if entry.Base.Path != actions.PathGIN || entry.Base.Backend != actions.BackendProxy {
		t.Errorf("%s is in force, where GIN takes half of the time", entry.Base)
	}
	stored := []Learned{{Key: Key{Bucket: b}, Action: entry.Base, Calls: 9, CostNs: 4000, Default: 9000}}
	core = kernelCore(t, Config{}, CommJoined{Prior: stored})
	if e := entryOf(core.Step(2, Tick{}).Plans, b); e.ID != 0 {
		t.Errorf("the first plan has %+v", e)
	}
	core.Step(3, KernelsOpen{Comm: 1})
	if e := entryOf(core.Step(4, Tick{}).Plans, b); e.ID != 0 {
		t.Errorf("open memory is no GIN: %+v", e)
	}
}
