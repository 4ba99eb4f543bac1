package tuner

import (
	"fmt"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
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

// before is what a store has of a bucket where the running choice takes 0.8 of the default's time.
func before(b state.Bucket, running actions.Action) []Learned {
	return []Learned{{Key: Key{Bucket: b}, Action: running, Calls: 1000, CostNs: 80e3, Default: 100e3,
		Evidence: map[actions.Action]Estimate{actions.Default: {N: 50, MeanNs: 100e3, VarLog: 1e-4}, running: {N: 900, MeanNs: 80e3, VarLog: 1e-4}}}}
}

func judged(t *testing.T, name string, stored bool) {
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}
	running := parse(t, "Ring/LL/8")[0]
	joined := CommJoined{InForce: map[state.Bucket]actions.Action{b: running}}
	if stored {
		joined = CommJoined{Prior: before(b, running)}
	}
	p := newCaller(t, name, Config{Explore: true, Guard: agents.DefaultGuardConfig(), WatchShare: 0.004}, joined, b, 0b111_111)
	p.entry.Base = running
	worse := 0
	for seq := range uint64(2000) {
		a := p.next()
		us := 100.0
		if a == running {
			us = 120
			worse++
		} else if a != actions.Default {
			us = 130
		}
		ns, now := state.Ns(us*1000*(1+0.02*float64(seq%3))), state.Ns(seq*1e6)
		p.tell(now, seq, a, a, ns)
		p.tick(now)
	}
	t.Logf("%s: %d of 2,000 calls with the worse choice, %s at the end", name, worse, p.entry.Base)
	if p.entry.Base != actions.Default || worse > 200 {
		t.Errorf("%s: %d of 2,000 calls with the worse choice, %s at the end", name, worse, p.entry.Base)
	}
}

// It goes, too, where next to nothing is heard of the default's calls, but enough that its own latest ones are dearer: the guard drops it then,
// and nobody measures the default for its sake any more.
func TestChoiceInForceThatLosesIsDropped(t *testing.T) {
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}
	running := parse(t, "Ring/LL/8")[0]
	for _, name := range []string{agents.NameLSTM, agents.NameUCB, agents.NameThompson, agents.NameCoordinateDescent, agents.NameSuccessiveHalving} {
		p := newCaller(t, name, Config{Explore: true, SampleEvery: 1}, CommJoined{InForce: map[state.Bucket]actions.Action{b: running}}, b, 0b111_111)
		p.entry.Base = running
		heard, after := 0, 0
		for seq := range uint64(2000) {
			a, now := p.next(), state.Ns(seq*1e6)
			switch {
			case a == running:
				p.tell(now, seq, a, a, 109_000)
			case a == actions.Default && heard < guardNeeds-1:
				p.tell(now, seq, a, a, 100_000)
				heard++
			}
			if heard > 0 && a == running {
				after++
			}
			p.tick(now)
		}
		if heard != guardNeeds-1 || after > 100 || p.entry.Base != actions.Default {
			t.Errorf("%s: %d calls of the default were heard, and %d of the worse choice made since, %s at the end", name, heard, after, p.entry.Base)
		}
	}
}

// guardNeeds is how many calls of the default a guard wants to judge what is in force.
const guardNeeds = 3

// Without exploration what is stored stays in force over a change of conditions: nobody could judge it, and NCCL's default is no better
// known.
func TestStoredChoiceStaysWithoutExploration(t *testing.T) {
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}
	running := parse(t, "Ring/LL/8")[0]
	p := newCaller(t, agents.NameLSTM, Config{Guard: agents.DefaultGuardConfig(), WatchShare: 0.004}, CommJoined{Prior: before(b, running)}, b, 0b111_111)
	p.entry.Base = running
	for seq := range uint64(400) {
		us := 80.0
		if seq >= 200 {
			us = 200
		}
		now := state.Ns(seq * 1e6)
		p.tell(now, seq, p.next(), running, state.Ns(us*1000*(1+0.02*float64(seq%3))))
		p.tick(now)
	}
	if p.core.totals.Alarms == 0 {
		t.Error("no alarm, so nothing was shown")
	}
	if p.entry.Base != running {
		t.Errorf("%s is in force after a change of conditions, and %s is stored", p.entry.Base, running)
	}
}

// Exploration is switched off while a choice is in force: it stays, as it would over a restart of the daemon, and over an alarm. Switched
// on again, it goes where it has become worse than NCCL's default.
func TestChoiceStaysWhenExplorationEnds(t *testing.T) {
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}
	p := newCaller(t, agents.NameUCB, Config{Explore: true, SampleEvery: 1}, CommJoined{}, b, 0b111_111)
	playMarked(p, 2000)
	if p.entry.Base.Protocol != actions.LL {
		t.Fatalf("%s is in force", p.entry.Base)
	}
	p.core.SetExplore(false)
	if best := playMarked(p, 500); best < 450 || len(p.entry.Trials) > 0 {
		t.Errorf("%d of 500 calls are of the choice, and %v is in force", best, p.entry)
	}
	p.core.SetExplore(true)
	for range 500 {
		now, a := state.Ns(p.made)*1000, p.next()
		ns := state.Ns(40_000)
		if a != actions.Default {
			ns = 80_000
		}
		p.tell(now, uint64(p.made), a, a, ns+state.Ns(p.made%3)*200)
		p.tick(now)
	}
	if p.entry.Base != actions.Default {
		t.Errorf("%s is in force, at twice the default's time", p.entry.Base)
	}
}
