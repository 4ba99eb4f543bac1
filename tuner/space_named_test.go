package tuner

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// marksOf are those of a rank that NCCL has refused nothing (dyn_named_marks of nccltuner/plugin/named.h).
func marksOf(c actions.Collective) (set MarkSet) {
	for p := range actions.Protocol(actions.NumProtocols) {
		set |= MarkOf(actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: p})
		if c == actions.AllReduceRegistered {
			set |= MarkOf(actions.Action{Path: actions.PathCollective, Algorithm: actions.Tree, Protocol: p})
		}
	}
	for s := actions.SymmetricLL; s < actions.NumSymmetric; s++ {
		if s.Names(c) {
			set |= MarkOf(actions.Action{Path: actions.PathSymmetric, Symmetric: s})
		}
	}
	return set
}

// On registered memory a set has what can be named, each once and without a number of channels, and our kernels; what is refused is
// in no set.
func TestNamedSet(t *testing.T) {
	const gather, reduce = "default Ring/LL Ring/LL128 Ring/Simple symmetric/LL symmetric/LLMC symmetric/ST symmetric/STMC symmetric/TmaST symmetric/TmaSTMC",
		"default Tree/LL Tree/LL128 Tree/Simple Ring/LL Ring/LL128 Ring/Simple "
	for _, c := range []struct {
		collective actions.Collective
		without    actions.Symmetric
		more       MarkSet
		want       string
	}{
		{actions.AllGatherRegistered, 0, 0, gather},
		{actions.AllGatherRegistered, 0, MarkOneShot, gather + " lsa/oneshot/1"},
		{actions.AllGatherRegistered, actions.SymmetricTmaSTMC, MarkGDAKI, gather[:len(gather)-len(" symmetric/TmaSTMC")]},
		{actions.ReduceScatterRegistered, actions.SymmetricLL, 0, "default Ring/LL Ring/LL128 Ring/Simple symmetric/LD symmetric/LDMC symmetric/TmaLD"},
		{actions.AllReduceRegistered, actions.SymmetricRSxTmaLD, 0, reduce + "symmetric/AGxLL_R symmetric/AGxLLMC_R symmetric/RSxLD_AGxST symmetric/RSxLDMC_AGxSTMC"},
		{actions.AllReduceRegistered, actions.SymmetricAGxLL, 1<<14 | 1<<17, reduce + "NVLS/Simple NVLSTree/Simple symmetric/AGxLLMC_R symmetric/RSxLD_AGxST symmetric/RSxLDMC_AGxSTMC symmetric/RSxTmaLD_AGxTmaST"},
	} {
		marks := marksOf(c.collective)&^MarkOf(actions.Action{Path: actions.PathSymmetric, Symmetric: c.without}) | c.more
		set := ActionSet(state.Bucket{Collective: c.collective, Log2Bytes: 10}, marks, 32)
		if names(set) != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.collective, names(set), c.want)
		}
		for _, a := range set {
			if err := a.Check(); err != nil || sameIn(set, a) != a {
				t.Errorf("%s: %s becomes %s, %v", c.collective, a, sameIn(set, a), err)
			}
		}
	}
}

// Names have bits of their own, apart from our kernels'.
func TestMarksOfNames(t *testing.T) {
	for _, c := range []actions.Collective{actions.AllGatherRegistered, actions.ReduceScatterRegistered, actions.AllReduceRegistered} {
		seen := MarkOneShot | MarkTwoShot | MarkBulk | MarkDeviceLL | 1<<31
		for _, a := range namedSet(state.Bucket{Collective: c}, ^MarkSet(0))[1:] {
			mark := MarkOf(a)
			if a.Path == actions.PathLSA {
				continue
			}
			if mark == 0 || mark&(mark-1) != 0 || mark&seen != 0 {
				t.Errorf("%s %s: bit %x", c, a, uint32(mark))
			}
			seen |= mark
		}
	}
	if MarkOf(actions.Action{Path: actions.PathSymmetric}) != 0 {
		t.Error("no name has a bit")
	}
}

// A name that stands for two kernels, of which NCCL takes the other one, leaves the set after a few calls, for good.
func TestMisnamed(t *testing.T) {
	b := state.Bucket{Collective: actions.AllReduceRegistered, Log2Bytes: 20}
	ll := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL}
	ll128 := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL128}
	for _, collective := range []actions.Collective{actions.AllReduceRegistered, actions.AllReduce} {
		b.Collective = collective
		core := kernelCore(t, Config{Explore: true}, CommJoined{})
		marks := Marks{Comm: 1, Bucket: b, Set: marksOf(actions.AllReduceRegistered)}
		core.Step(1, marks)
		slot := &core.comms[1].buckets[b.Collective][b.Log2Bytes]
		for call := range uint64(6) {
			asked := ll
			if call%2 == 1 {
				asked = ll128 // as it says
			}
			for r := range int32(4) {
				core.Step(2, &Sample{Comm: 1, Seq: call, Rank: r, Bucket: b, Bytes: 1 << 20, Action: asked, Ran: ll128, SignalNs: 9000, CounterNs: 9000, EventTimed: true})
			}
			has := slices.ContainsFunc((*slot).set, func(a actions.Action) bool { return a.Kind() == ll })
			if want := call < 4 || collective == actions.AllReduce; has != want {
				t.Errorf("%s, call %d: Ring/LL in the set: %v", collective, call, has)
			}
		}
		core.Step(3, marks)
		if has := slices.Contains((*slot).set, ll); has && collective == actions.AllReduceRegistered || !slices.ContainsFunc((*slot).set, func(a actions.Action) bool { return a.Kind() == ll128 }) {
			t.Errorf("%s: %s", collective, names((*slot).set))
		}
	}
}

// Stored choices for registered memory, by name and of our own kernels, wait until all ranks have told of a call of their collective
// there; then they are in the plan before any call of their own size, and before what is stored for other memory.
func TestStoredChoicesOnRegisteredMemory(t *testing.T) {
	ours := actions.Action{Path: actions.PathLSA, Kernel: actions.TwoShot, Channels: 16}
	ring := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.Simple}
	stored := func(c actions.Collective, log2 uint8, a actions.Action) Learned {
		return Learned{Key: Key{Bucket: state.Bucket{Collective: c, Log2Bytes: log2}}, Action: a, CostNs: 1000, Default: 2000, Calls: 100,
			Evidence: map[actions.Action]Estimate{a: {N: 50, MeanNs: 1000}, actions.Default: {N: 50, MeanNs: 2000}}}
	}
	prior := []Learned{stored(actions.AllReduceRegistered, 20, ring), stored(actions.AllReduceRegistered, 21, actions.Action{Path: actions.PathSymmetric, Symmetric: actions.SymmetricAGxLL}),
		stored(actions.AllReduceRegistered, 22, ours), stored(actions.AllGatherRegistered, 20, ring), stored(actions.AllGatherRegistered, 21, actions.Default)}
	for log2 := range uint8(MaxEntries) { // as many as a plan has room for, and each gains more
		l := stored(actions.Broadcast+actions.Collective(log2/state.NumBuckets), log2%state.NumBuckets, actions.Action{Path: actions.PathLSA, Kernel: actions.Bulk, Channels: 1 + log2})
		l.Default = 9000
		prior = append(prior, l)
	}
	called := Marks{Comm: 1, Bucket: state.Bucket{Collective: actions.AllReduceRegistered, Log2Bytes: 12}, Set: marksOf(actions.AllReduceRegistered)}
	differ := called
	differ.Differ, differ.Bucket.Log2Bytes = true, 13
	for _, c := range []struct {
		events []Event
		want   string // of AllReduce on registered memory, after each event
	}{
		{[]Event{Tick{}, KernelsOpen{Comm: 1}, differ, called}, "|||20:Ring/Simple 21:symmetric/AGxLL_R 22:lsa/twoshot/16"},
		{[]Event{called, KernelsOpen{Comm: 1}}, "20:Ring/Simple 21:symmetric/AGxLL_R|20:Ring/Simple 21:symmetric/AGxLL_R 22:lsa/twoshot/16"},
	} {
		core := kernelCore(t, Config{Explore: true}, CommJoined{Prior: prior, EventTimed: true})
		var got, now []string
		for i, e := range c.events {
			core.Step(state.Ns(2*i+1), e)
			for _, p := range core.Step(state.Ns(2*i+2), Tick{}).Plans {
				now = nil
				for _, e := range p.Entries {
					if e.Bucket.Collective == actions.AllGatherRegistered || len(p.Entries) > MaxEntries {
						t.Errorf("%d entries, %s", len(p.Entries), e.Bucket)
					}
					if e.Bucket.Collective == actions.AllReduceRegistered && e.Bucket.Log2Bytes >= 20 {
						now = append(now, fmt.Sprintf("%d:%s", e.Bucket.Log2Bytes, e.Base))
					}
				}
			}
			slices.Sort(now)
			got = append(got, strings.Join(now, " "))
		}
		if all := strings.Join(got, "|"); all != c.want {
			t.Errorf("%s, want %s", all, c.want)
		}
	}
}
