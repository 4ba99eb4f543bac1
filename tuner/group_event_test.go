package tuner

import (
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// playEvents sends one call's spans (start, end on the host's clock, the same for all GPUs) after enough calls for the clocks.
func playEvents(t *testing.T, c actions.Collective, ran []actions.Action, spans [][2]int64) (o state.Observation, bad bool, j *joiner) {
	t.Helper()
	j = &joiner{heard: allRanks(len(spans))}
	b := state.Bucket{Collective: c, Log2Bytes: 16}
	done := false
	for seq := range uint64(clockMinimum) {
		for r, span := range spans {
			at := 1_000_000_000 + 100_000*int64(seq)
			s := &Sample{Seq: seq, Rank: int32(r), Bucket: b, Bytes: 65536, ClockNs: 1, EventTimed: true, Ran: ran[r],
				StartNs: uint64(at + span[0]), SignalNs: state.Ns(span[1] - span[0]), CounterNs: state.Ns(span[1] - span[0])}
			o, bad, done = j.add(0, s)
		}
	}
	if !done {
		t.Fatal("the group is not complete")
	}
	return o, bad, j
}

// Events have the launch in them and end when the call does: a tree counts like a ring, and what events take is taken off.
func TestGroupCostByEvents(t *testing.T) {
	ring := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring}
	ringOf := func(channels uint8) actions.Action {
		a := ring
		a.Channels = channels
		return a
	}
	unknown := actions.Action{}
	for _, c := range []struct {
		name       string
		collective actions.Collective
		ran        actions.Action
		spans      [][2]int64
		bad        bool
		want, skew state.Ns
	}{
		{"ring", actions.AllReduce, ring, [][2]int64{{0, 9000}, {4000, 9500}}, false, 3500, 4000},
		{"tree", actions.AllReduce, treeLL, [][2]int64{{0, 9000}, {4000, 9500}}, false, 3500, 4000},
		{"a tree cannot end before its last rank comes", actions.AllReduce, treeLL, [][2]int64{{0, 9000}, {20_000, 29_000}}, true, 0, 0},
		{"nor a kernel without a name", actions.AllGather, unknown, [][2]int64{{0, 9000}, {20_000, 29_000}}, true, 0, 0},
		{"a broadcast's root can", actions.Broadcast, ring, [][2]int64{{0, 9000}, {20_000, 29_000}}, false, 7000, 20_000},
		{"ends far apart are unusual and true", actions.AllReduce, ring, [][2]int64{{0, 9000}, {100, 320_000}}, false, 317_900, 100},
		{"a call never loses more than two thirds", actions.AllReduce, ring, [][2]int64{{0, 2900}, {0, 2900}}, false, 967, 0},
		{"a ring of 8 channels", actions.AllReduce, ringOf(8), [][2]int64{{0, 9000}, {0, 9000}}, false, 7000, 0},
		{"one of 16 begins early", actions.AllReduce, ringOf(16), [][2]int64{{0, 9000}, {0, 9000}}, false, 5500, 0},
		{"so do ours, and leave a stamp", actions.AllReduce, parse(t, "lsa/oneshot/4")[0], [][2]int64{{0, 9000}, {0, 9000}}, false, 4150, 0},
		{"and symmetric ones", actions.AllGather, parse(t, "symmetric/ST")[0], [][2]int64{{0, 9000}, {0, 9000}}, false, 5400, 0},
		{"of AllToAll nothing says what runs", actions.AllToAll, unknown, [][2]int64{{0, 9000}, {0, 9000}}, false, 7000, 0},
		{"kernel without a name", actions.AllReduce, unknown, [][2]int64{{500, 9000}, {0, 8900}}, false, 4900, 500},
	} {
		o, bad, j := playEvents(t, c.collective, []actions.Action{c.ran, c.ran}, c.spans)
		if bad != c.bad || (!bad && (o.SignalNs != c.want || o.SkewNs != c.skew)) {
			t.Errorf("%s: %+v, bad %v, want %d ns, skew %d ns, bad %v", c.name, o, bad, c.want, c.skew, c.bad)
		}
		if (j.incoherent > 0) != c.bad || j.disagreed != 0 {
			t.Errorf("%s: %d incoherent, %d disagreed", c.name, j.incoherent, j.disagreed)
		}
	}
}

// From 1 MiB on NCCL's AllToAll has 16 channels, which begin early.
func TestEarlyAllToAll(t *testing.T) {
	for log2Bytes, want := range map[uint8]state.Ns{16: 0, 19: 0, 20: 1500, 26: 1500} {
		if got := earlyNs(state.Bucket{Collective: actions.AllToAll, Log2Bytes: log2Bytes}, actions.Default); got != want {
			t.Errorf("%d ns at %d bytes, want %d", got, 1<<log2Bytes, want)
		}
		if got := earlyNs(state.Bucket{Collective: actions.AllToAllRegistered, Log2Bytes: log2Bytes}, actions.Default); got != 0 {
			t.Errorf("%d ns of registered memory, of which nothing was measured", got)
		}
	}
}

// Before the clocks are known the shortest duration counts, for trees as well, and one-way collectives wait.
func TestGroupCostByEventsWithoutClocks(t *testing.T) {
	for collective, wantBad := range map[actions.Collective]bool{actions.AllReduce: false, actions.Broadcast: true, actions.Reduce: true} {
		j := joiner{heard: allRanks(2)}
		for r := range int32(2) {
			o, bad, done := j.add(0, &Sample{Rank: r, Bucket: state.Bucket{Collective: collective, Log2Bytes: 16}, StartNs: 5, ClockNs: 7, EventTimed: true,
				SignalNs: 9000 - 1000*state.Ns(r), Ran: treeLL})
			if done && (bad != wantBad || (!bad && o.SignalNs != 6000)) {
				t.Errorf("%v: %+v bad %v, want 6000 ns and bad %v", collective, o, bad, wantBad)
			}
		}
	}
}

// A rank that launches from a host callback cannot say what ran: the others say it. Two that say different things do not
// agree.
func TestGroupsOfWhichSomeRanksKnowWhatRan(t *testing.T) {
	ring := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring}
	spans := [][2]int64{{0, 9000}, {0, 9000}, {0, 9000}}
	for i, c := range []struct {
		ran       []actions.Action
		disagreed bool
	}{
		{[]actions.Action{{}, ring, ring}, false},
		{[]actions.Action{ring, {}, ring}, false},
		{[]actions.Action{{}, {}, ring}, false},
		{[]actions.Action{{}, ring, treeLL}, true},
		{[]actions.Action{ring, {}, treeLL}, true},
	} {
		o, bad, j := playEvents(t, actions.AllReduce, c.ran, spans)
		if bad != c.disagreed || (j.disagreed > 0) != c.disagreed || (!bad && o.Ran != ring) {
			t.Errorf("case %d: %+v, bad %v, %d disagreed", i, o, bad, j.disagreed)
		}
	}
}

// A stream with nothing to do reaches a call before the host has issued it: what it waits for the host is no cost of the
// choice. A call that was issued long before the stream came to it, or an instant that cannot be, changes nothing. Its GPU waited for a
// call that some rank issued later than a launch takes before the last one's stream came.
func TestGroupCostByEventsLeavesOutTheHost(t *testing.T) {
	for _, c := range []struct {
		rank         int32
		issued, want int64
		idle         bool
	}{{1, 0, 18_000, false}, {1, 5_000, 13_000, true}, {1, -300_000, 18_000, false}, {1, 400_000, 18_000, true},
		{1, -launchWayNs + 100, 18_000, true}, {1, -launchWayNs - 100, 18_000, false}, {0, -launchWayNs + 100, 18_000, true}, {0, -300_000, 18_000, false}} {
		j := joiner{heard: allRanks(2)}
		var o state.Observation
		for seq := range uint64(clockMinimum) {
			for r := range int32(2) {
				at := 1_000_000_000 + 1_000_000*int64(seq)
				s := &Sample{Seq: seq, Rank: r, Bucket: state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}, ClockNs: 1, EventTimed: true,
					Ran: treeLL, StartNs: uint64(at), SignalNs: 20_000, CounterNs: 20_000}
				if c.issued != 0 && r == c.rank { // of what it took the last one counts
					s.RecvNs = at + s.ClockNs + c.issued
				}
				o, _, _ = j.add(0, s)
			}
		}
		if int64(o.SignalNs) != c.want || int64(o.CounterNs) != c.want || o.Idle != c.idle || j.incoherent != 0 {
			t.Errorf("issued %d ns after the stream came: %+v, want %d ns", c.issued, o, c.want)
		}
	}
}
