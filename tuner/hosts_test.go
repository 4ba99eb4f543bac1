package tuner

import (
	"slices"
	"strings"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

// A call is complete once the ranks of this host have told of it, whichever numbers they have; others tell nothing here.
func TestCallsOfSomeRanks(t *testing.T) {
	j := joiner{heard: 1<<1 | 1<<6}
	add := func(seq uint64, rank int32) bool {
		_, bad, done := j.add(0, &Sample{Seq: seq, Rank: rank, SignalNs: 10_000, EventTimed: true, StartNs: 1e9 + 1e6*seq, ClockNs: 5, Action: actions.Default})
		if bad && j.unclocked == 0 {
			t.Errorf("call %d is bad", seq)
		}
		return done
	}
	for seq := range uint64(20) {
		if add(seq, 6) || !add(seq, 1) {
			t.Fatalf("call %d of ranks 1 and 6", seq)
		}
	}
	if add(20, 0) || add(20, 7) || add(20, 63) || add(20, 64) || add(20, -1) || j.late != 5 {
		t.Errorf("ranks that are elsewhere: %d late", j.late)
	}
	for seq := uint64(21); seq < 21+groupWindow+silentCalls; seq++ {
		add(seq, 1)
		if rank, silent := j.silent(); silent {
			if rank != 6 {
				t.Errorf("rank %d is silent", rank)
			}
			return
		}
	}
	t.Error("rank 6 is silent, and nobody says so")
}

func TestHeard(t *testing.T) {
	for _, c := range []struct {
		ranks   int
		heard   uint64
		want    uint64
		several bool
	}{
		{4, 0, 0b1111, false},
		{4, 0b1111, 0b1111, false},
		{4, 0b0101, 0b0101, true},
		{4, 0b11100, 0b1100, true},
		{64, 0, ^uint64(0), false},
		{64, 1 << 63, 1 << 63, true},
		{0, 0, 0, false},
	} {
		e := CommJoined{Shape: state.Shape{Ranks: c.ranks}, Heard: c.heard}
		if e.heard() != c.want || e.several() != c.several {
			t.Errorf("%+v: %b, several %v", c, e.heard(), e.several())
		}
	}
}

// On several hosts NCCL's algorithms and kernels over GIN alone are choices, whatever marks say, for a rank would refuse others and all that is in the plan
// beside them; collectives that a rank may be done with early have none. What is stored comes before its marks, as on one host.
func TestChoicesAcrossHosts(t *testing.T) {
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 20}
	ring := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.Simple, Channels: 8}
	stored := func(c actions.Collective, a actions.Action) Learned {
		return Learned{Key: Key{Bucket: state.Bucket{Collective: c, Log2Bytes: 20}}, Action: a, Calls: 9, CostNs: 1, Default: 2}
	}
	name := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.Simple}
	has := func(c actions.Collective) bool { return c == actions.AllReduce || c == actions.AllToAll }
	prior := []Learned{stored(actions.AllReduce, ring), stored(actions.Reduce, ring), stored(actions.AllGatherRegistered, name),
		stored(actions.AllToAll, actions.Action{Path: actions.PathLSA, Channels: 4})}
	for _, several := range []bool{false, true} {
		e := CommJoined{Shape: state.Shape{Ranks: 4, Nodes: 2}, Prior: prior}
		if several {
			e.Heard = 0b0011
		}
		core := coreOf(t, agents.NameUCB, Config{Explore: true}, e)
		core.Step(0, KernelsOpen{Comm: 1})
		want := 4
		if several {
			want = 1
		}
		core.Step(0, Marks{Comm: 1, Bucket: state.Bucket{Collective: actions.AllGatherRegistered, Log2Bytes: 4}, Set: 0b111_111})
		var early []Entry
		for _, e := range core.Step(0, Tick{}).Plans[0].Entries {
			if e.Base != actions.Default {
				early = append(early, e)
			}
		}
		if len(early) != want || several && early[0].Bucket != b {
			t.Errorf("several %v: the first plan has %+v", several, early)
		}
		const marks = 0b111_111 | MarkOneShot | MarkBulk | MarkProxy | MarkContexts
		for _, c := range []actions.Collective{actions.AllReduce, actions.AllToAll, actions.AllGatherRegistered, actions.Broadcast, actions.Reduce} {
			core.Step(0, Marks{Comm: 1, Bucket: state.Bucket{Collective: c, Log2Bytes: 20}, Set: marks})
			set := core.comms[1].buckets[c][20].set
			if near := slices.ContainsFunc(set, func(a actions.Action) bool { return a.Path == actions.PathLSA || a.Path == actions.PathSymmetric }); near == several {
				t.Errorf("several %v, %v: %v", several, c, set)
			}
			if nccls := slices.ContainsFunc(set, func(a actions.Action) bool { return a.Path == actions.PathCollective }); several && nccls != (c == actions.AllReduce) {
				t.Errorf("several %v, %v: %v", several, c, set)
			}
			if gin := slices.ContainsFunc(set, onGIN); several && gin != has(c) {
				t.Errorf("%v over GIN: %v", c, set)
			}
			if one := len(set) == 1; set[0] != actions.Default || one != (several && !has(c)) {
				t.Errorf("several %v, %v: %v", several, c, set)
			}
		}
		device := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 8}
		core.Step(0, Marks{Comm: 1, Bucket: device, Set: 0b111_111 | MarkDeviceLL})
		if set := core.comms[1].buckets[device.Collective][device.Log2Bytes].set; slices.Contains(set, deviceLL) == several {
			t.Errorf("several %v: %v", several, set)
		}
		for _, v := range core.BucketsOf(1) {
			if said := strings.Contains(v.Note, "on several hosts"); said != (several && !has(v.Bucket.Collective)) {
				t.Errorf("several %v, %s: %q", several, v.Bucket, v.Note)
			}
		}
		core.Step(1, Tick{})
		if got := core.comms[1].buckets[b.Collective][b.Log2Bytes].entry.Base; got != ring {
			t.Errorf("several %v: what is stored is allowed, and %s is in force", several, got)
		}
	}
}

// What the ranks of one host tell is learned for the whole communicator's shape.
func TestLearnedAcrossHosts(t *testing.T) {
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 10}
	shape := state.Shape{Ranks: 6, Nodes: 3}
	p := newCaller(t, agents.NameUCB, Config{Explore: true, Guard: agents.DefaultGuardConfig(), SampleEvery: 1}, CommJoined{Shape: shape, Heard: 0b10_0100}, b, 0b111_111)
	var learned []Learned
	for seq := range uint64(2000) {
		a, now := p.next(), state.Ns(seq*1e6)
		ns := state.Ns(30_000)
		if isTree(a) {
			ns = 15_000
		}
		for _, r := range []int32{5, 2} {
			p.core.Step(now, &Sample{Comm: 1, Seq: seq, Rank: r, Bucket: b, Bytes: 1 << 10, Action: a, Ran: a, SignalNs: ns + state.Ns(seq%7), EventTimed: true,
				Made: p.made, Plan: uint32(p.version), EntryCall: uint8(min(p.calls, 255))})
		}
		p.core.Step(now, Agreed{Comm: 1, Version: p.version})
		p.tick(now)
	}
	learned = append(learned, p.core.Step(3e9, CommLeft{Comm: 1}).Learned...)
	if len(learned) != 1 || !isTree(learned[0].Action) || learned[0].Key.Shape != shape {
		t.Errorf("%+v", learned)
	}
}

// A plan that hosts have not agreed on yet, or that one refuses for long, has no trials that could be lost; once it is in force it has.
func TestWhatIsNotInForceIsNotLost(t *testing.T) {
	for _, several := range []bool{false, true} {
		r := newRare(t)
		if several {
			r.core.comms[1].Heard, r.core.comms[1].Shape.Ranks = 1, 2
		}
		r.run(3000, true)
		if r.entries == 0 {
			t.Fatal("nothing is tried")
		}
		r.lose = 1 << 30
		entries := r.entries
		r.run(400_000, false)
		if lost := r.entries > entries; lost == several {
			t.Errorf("several %v: %d entries after %d before", several, r.entries, entries)
		}
		if !several {
			continue
		}
		r.core.Step(state.Ns(r.seq)*r.callNs, Agreed{Comm: 1, Version: r.version})
		if r.run(lostAfter/2, false); r.entries > entries {
			t.Error("trials are lost as soon as they are in force")
		}
		if r.run(4*lostAfter, false); r.entries == entries {
			t.Error("trials that are in force are waited for for ever")
		}
	}
}

// Hosts that have lost each other cannot agree on anything more: nothing is planned, and what was learned is kept.
func TestPartedHostsTryNothing(t *testing.T) {
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 10}
	p := newCaller(t, agents.NameUCB, Config{Explore: true, Guard: agents.DefaultGuardConfig(), SampleEvery: 1},
		CommJoined{Shape: state.Shape{Ranks: 2, Nodes: 2}, Heard: 1}, b, 0b111_111)
	run := func(from, to uint64) {
		for seq := from; seq < to; seq++ {
			a, now := p.next(), state.Ns(seq*1e6)
			p.tell(now, seq, a, a, 30_000+state.Ns(seq%7))
			p.core.Step(now, Agreed{Comm: 1, Version: p.version})
			p.tick(now)
		}
	}
	run(0, 2000)
	if p.version < 3 {
		t.Fatalf("%d plans", p.version)
	}
	p.core.Step(2e9, Parted{Comm: 1})
	p.core.Step(2e9, Marks{Comm: 1, Bucket: state.Bucket{Collective: actions.AllGather, Log2Bytes: 10}, Set: 7})
	before := p.version
	run(2000, 20_000)
	if p.version != before {
		t.Errorf("%d plans more", p.version-before)
	}
	if totals := p.core.Totals(); totals.Agreed != p.version || totals.Plans != p.version {
		t.Errorf("plan %d, and %+v", p.version, totals)
	}
	if v := p.core.BucketsOf(1); len(v) != 2 || !strings.Contains(v[1].Note, "lost each other") {
		t.Errorf("%+v", v)
	}
	if out := p.core.Step(2e10, CommLeft{Comm: 1}); len(out.Learned) != 1 {
		t.Errorf("learned %+v", out.Learned)
	}
	p.core.Step(2e10, Parted{Comm: 1}) // which nobody knows any more
	p.core.Step(2e10, Agreed{Comm: 1})
}

// Of puts over GIN ranks of all hosts tell, and what the two of a pair say is joined wherever they are. Words that stay alone, for a host's
// ranks tell nothing, are neither a finding nor a reason for another plan, and are not kept without end.
func TestTripsOfRanksElsewhere(t *testing.T) {
	core := coreOf(t, agents.NameUCB, Config{}, CommJoined{Shape: state.Shape{Ranks: 4, Nodes: 2}, Heard: 0b0011})
	core.Step(0, Tick{})
	plans, closely, findings := 0, 0, 0
	step := func(nowNs state.Ns, e Event) {
		out := core.Step(nowNs, e)
		plans, findings = plans+len(out.Plans), findings+len(out.Findings)
		for _, p := range out.Plans {
			closely += b2i(p.Closely)
		}
	}
	number := uint32(0)
	call := func(silent int32) {
		number++
		for rank := range int32(4) {
			for peer := range int32(4) {
				if rank != peer && rank != silent {
					step(state.Ns(number)*1e6, &Trip{Comm: 1, Number: number, Rank: rank, Peer: peer, Action: gin4, Bytes: 64, SignalNs: state.Ns(10_000 + number%7), CounterNs: 5000})
				}
			}
		}
		if number%40 == 0 {
			step(state.Ns(number)*1e6, Tick{})
		}
	}
	for range 2000 {
		call(-1)
	}
	n := core.Totals().Trips
	if links := core.LinksOf(1); len(links) != 12 || n.Joined != 2000*12 || n.Elsewhere != 2000*6 || n.Rejected+n.Unkept+n.Unknown != 0 {
		t.Errorf("%d ways, %+v", len(links), n)
	}
	if closely == 0 { // what is to be expected of a way is not known at first
		t.Errorf("of %d plans none has puts timed closely", plans)
	}
	plans = 0
	const alone = 40_000
	for range alone {
		call(3)
	}
	n = core.Totals().Trips
	if m := core.comms[1].trips; len(m.joiner.open) > tripWindow || len(m.joiner.queue) > tripWindow || n.Incomplete < 3*alone-tripWindow || n.Joined != (2000+alone)*12-alone*6 {
		t.Errorf("%d wait, %+v", len(m.joiner.open), n)
	}
	if findings+plans != 0 {
		t.Errorf("%d findings, %d plans", findings, plans)
	}
}
