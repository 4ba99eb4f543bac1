package tuner

import (
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"

	"pgregory.net/rapid"
)

// Every call that some rank sampled is in one of the totals, and only there: what ran is what was chosen, or the reason is counted. Calls
// whose times are worth nothing are told apart from those that ran something else.
func TestEveryCallIsAccountedFor(tt *testing.T) {
	const ranks = 3
	names := parse(tt, "default", "Ring/LL/8", "Ring/LL/2", "Tree/Simple/8", "lsa/oneshot/4", "lsa/oneshot/1")
	rapid.Check(tt, func(t *rapid.T) {
		bucket := state.Bucket{Collective: rapid.SampledFrom([]actions.Collective{actions.AllReduce, actions.Broadcast}).Draw(t, "collective"), Log2Bytes: 16}
		nccl := rapid.SampledFrom([]int{0, untoldBroadcast - 1, untoldBroadcast}).Draw(t, "NCCL")
		core := coreOf(tt, agents.NameDefault, Config{}, CommJoined{Shape: state.Shape{Ranks: ranks, Nodes: 1}, NCCLVersion: nccl})
		marks, onDevice := MarkSet(0b111_111|MarkOneShot), false
		if rapid.Bool().Draw(t, "the bucket is known") {
			if onDevice = rapid.Bool().Draw(t, "LL is a device kernel"); onDevice {
				marks |= MarkDeviceLL
			}
			core.Step(0, Marks{Comm: 1, Bucket: bucket, Set: marks})
		}
		var want RanTotals
		var incomplete uint64
		calls := rapid.IntRange(1, 60).Draw(t, "calls")
		for seq := range calls {
			asked := rapid.SampledFrom(names).Draw(t, "asked")
			ran := rapid.SampledFrom(names).Draw(t, "ran")
			missing := rapid.IntRange(-8, ranks-1).Draw(t, "missing")
			odd := rapid.IntRange(-8, ranks-1).Draw(t, "asked for something else")
			aggregated := rapid.IntRange(0, 5).Draw(t, "aggregated") == 0
			wisher := rapid.IntRange(-8, ranks-1).Draw(t, "rank whose name is a wish")
			slow := rapid.IntRange(0, 5).Draw(t, "slow") == 0
			for rank := range int32(ranks) {
				s := &Sample{Comm: 1, Seq: uint64(seq), Rank: rank, Bucket: bucket, Bytes: 65536, Action: asked, Ran: ran, SignalNs: 5000, CounterNs: 5000,
					Aggregated: aggregated, Wished: int(rank) == wisher, Slow: slow, EventTimed: true}
				if int(rank) == odd {
					s.Action = actions.Action{Path: actions.PathCollective, Algorithm: actions.PAT}
				}
				if int(rank) != missing {
					core.Step(state.Ns(seq), s)
				}
			}
			ours := asked.Ours() || ran.Ours()
			same := ran.Path == asked.Path && ran.Algorithm == asked.Algorithm && ran.Protocol == asked.Protocol && ran.Kernel == asked.Kernel
			overruled := &want.Overruled
			if wisher >= 0 {
				overruled = &want.Declined
			}
			switch {
			case missing >= 0:
				incomplete++
			case aggregated:
				want.Aggregated++
			case odd >= 0:
				want.Disagreed++
			case ours && !same:
				*overruled++
			case asked == actions.Default:
				want.Default++
			case ran == actions.Default && bucket.Collective == actions.Broadcast && nccl >= untoldBroadcast:
				want.Untold++
			case ran == actions.Default && bucket.Collective == actions.AllReduce && onDevice && asked.Protocol == actions.LL:
				want.Untold++
			case ran == actions.Default:
				want.NotKnown++
			case same:
				want.Chosen++
			default:
				*overruled++
			}
		}
		if rapid.Bool().Draw(t, "it left") {
			core.Step(state.Ns(calls), CommLeft{1})
			if got := core.Totals().Incomplete; got != incomplete {
				t.Fatalf("%d calls are incomplete, %d counted", incomplete, got)
			}
		}
		got := core.Totals()
		if got.Ran != want || got.Ran.Groups() != got.Groups || got.Groups+incomplete != uint64(calls) || got.Overruled != want.Overruled {
			t.Fatalf("%+v, want %+v of %d calls, of which %d are incomplete", got, want, calls, incomplete)
		}
		if len(core.OverruledCalls()) != int(min(want.Overruled, mostOverruled)) {
			t.Fatalf("%d calls ran something else, and %+v are kept", want.Overruled, core.OverruledCalls())
		}
		var unknown uint64
		for _, c := range core.UnknownCalls() {
			unknown += c.Calls
			if c.Asked == "default" || c.Bytes != 65536 || c.Collective != bucket.Collective.String() || c.Ranks != ranks || c.Nodes != 1 {
				t.Fatalf("%+v", c)
			}
		}
		if unknown != want.NotKnown {
			t.Fatalf("%+v are not known, want %d", core.UnknownCalls(), want.NotKnown)
		}
		for _, c := range core.OverruledCalls() {
			if c.Asked == c.Ran || c.Bytes != 65536 || c.Collective != bucket.Collective.String() || c.Ranks != ranks || c.Nodes != 1 {
				t.Fatalf("%+v", c)
			}
		}
	})
}

// What is open when joining starts anew is incomplete, like what gave way to a later call.
func TestOpenCallsOfARestartAreIncomplete(t *testing.T) {
	j := joiner{heard: allRanks(2)}
	for seq := range uint64(5) {
		j.add(0, &Sample{Seq: seq, Rank: 0, Bucket: b64k, SignalNs: 10})
	}
	j.add(0, &Sample{Seq: 2, Rank: 1, Bucket: b64k, SignalNs: 10})
	j.restart()
	if j.restart(); j.incomplete != 4 {
		t.Errorf("%d incomplete, want 4", j.incomplete)
	}
}
