package tuner

import (
	"fmt"
	"slices"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/models"
	"dynamiccl/state"
)

// What an earlier daemon had in force, and nothing is stored about, is judged soon: it goes where it is worse than NCCL's default.
func TestChoiceInForceIsJudged(t *testing.T) {
	for _, name := range []string{agents.NameLSTM, agents.NameUCB, agents.NameThompson, agents.NameCoordinateDescent, agents.NameSuccessiveHalving} {
		for _, stored := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, stored=%t", name, stored), func(t *testing.T) { judged(t, name, stored) })
		}
	}
}

func judged(t *testing.T, name string, stored bool) {
	newLearner, err := models.New(name)
	if err != nil {
		t.Fatal(err)
	}
	core, err := New(Config{NewLearner: newLearner, Explore: true, Seed: 1, Guard: agents.DefaultGuardConfig(), WatchShare: 0.004})
	if err != nil {
		t.Fatal(err)
	}
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}
	running := parse(t, "Ring/LL/8")[0]
	joined := CommJoined{Comm: 1, Shape: state.Shape{Ranks: 1, Nodes: 2}, EventTimed: true, Explore: true}
	if stored {
		joined.Prior = []Learned{{Key: Key{Shape: joined.Shape, Bucket: b}, Action: running, Calls: 1000, CostNs: 80e3, Default: 100e3,
			Evidence: map[actions.Action]Estimate{actions.Default: {N: 50, MeanNs: 100e3, VarLog: 1e-4}, running: {N: 900, MeanNs: 80e3, VarLog: 1e-4}}}}
	} else {
		joined.InForce = map[state.Bucket]actions.Action{b: running}
	}
	core.Step(0, joined)
	core.Step(0, Marks{Comm: 1, Bucket: b, Set: 0b111_111})
	entry, calls, version, made, worse := Entry{Base: running}, 0, uint64(0), uint16(0), 0
	for seq := range uint64(2000) {
		calls++
		a := entry.Action(calls)
		made++
		us := 100.0
		if a == running {
			us = 120
			worse++
		} else if a != actions.Default {
			us = 130
		}
		ns, now := state.Ns(us*1000*(1+0.02*float64(seq%3))), state.Ns(seq*1e6)
		core.Step(now, &Sample{Comm: 1, Seq: seq, Bucket: b, Bytes: 1 << 16, Action: a, Ran: a, SignalNs: ns, EventTimed: true, Made: made, Plan: uint32(version), EntryCall: uint8(min(calls, 255))})
		for _, p := range core.Step(now, Tick{}).Plans {
			version++
			core.Step(now, Published{Comm: 1, Version: version})
			if e := entryOf([]Plan{p}, b); e.ID != entry.ID {
				entry, calls = Entry{ID: e.ID, Base: e.Base, Skip: e.Skip, Trials: slices.Clone(e.Trials)}, 0
			}
		}
	}
	t.Logf("%s: %d of 2,000 calls with the worse choice, %s at the end", name, worse, entry.Base)
	if entry.Base != actions.Default || worse > 200 {
		t.Errorf("%s: %d of 2,000 calls with the worse choice, %s at the end", name, worse, entry.Base)
	}
}
