package tuner

import (
	"math"
	"slices"
	"testing"

	"dynamiccl/agents"
	"dynamiccl/state"
)

// Ranks tell by places, which go round, and of puts that are timed closely behind the others: they are taken in as they were made.
func TestPutsAreTakenInAsTheyWereMade(t *testing.T) {
	core := coreOf(t, agents.NameUCB, Config{Trace: true}, CommJoined{Shape: state.Shape{Ranks: 2, Nodes: 2}})
	const first = math.MaxUint32 - 600 // numbers go round, too
	number := func(n uint32) uint32 { return n + first }
	told := []uint32{number(1024), number(0), number(256), number(512), number(768), number(832), number(64), number(640)}
	for _, n := range told {
		for _, inGraph := range []bool{true, false} {
			for rank := range int32(2) {
				if out := core.Step(1e9, &Trip{Comm: 1, Number: n, InGraph: inGraph, Rank: rank, Peer: 1 - rank, Action: gin4, Bytes: 64, SignalNs: 9000}); len(out.Puts) > 0 {
					t.Fatalf("%+v before the tick", out.Puts)
				}
			}
		}
	}
	var got []uint32
	for i, p := range core.Step(2e9, Tick{}).Puts {
		if i%2 == 0 {
			got = append(got, p.Number-first)
		}
	}
	want := []uint32{0, 64, 256, 512, 640, 768, 832, 1024}
	if !slices.Equal(got, append(slices.Clone(want), want...)) {
		t.Errorf("%v", got)
	}
	if again := core.Step(3e9, Tick{}).Puts; len(again) > 0 {
		t.Errorf("%d once more", len(again))
	}
}

// What a rank that tells without end has told does not wait for a tick that is late, and what was told before an end counts.
func TestPutsHeldAreBounded(t *testing.T) {
	core := coreOf(t, agents.NameUCB, Config{Trace: true}, CommJoined{Shape: state.Shape{Ranks: 2, Nodes: 2}})
	taken, calls := 0, tripWindow
	for n := range uint32(calls) {
		for rank := range int32(2) {
			taken += len(core.Step(1e9, &Trip{Comm: 1, Number: n, Rank: rank, Peer: 1 - rank, Action: gin4, Bytes: 64, SignalNs: 9000}).Puts)
		}
		if held := len(core.comms[1].trips.held); held > tripWindow+1 {
			t.Fatalf("%d are held", held)
		}
	}
	core.Step(1e9, &Trip{Comm: 1, Number: 1 << 30, Rank: 0, Peer: 1, Action: gin4, Bytes: 64, SignalNs: 9000})
	core.Step(1e9, &Trip{Comm: 1, Number: 1 << 30, Rank: 1, Peer: 0, Action: gin4, Bytes: 64, SignalNs: 9000})
	taken += len(core.Step(1e9, CommLeft{Comm: 1}).Puts)
	if taken != 2*calls+2 {
		t.Errorf("%d of %d", taken, 2*calls+2)
	}
}
