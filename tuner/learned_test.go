package tuner

import (
	"math"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

// A program that makes few calls measures little of what is known, and so does a condition that lasts for few. What was measured before
// stays known, as much slower as the default is now.
func TestShortProgramForgetsNothing(t *testing.T) {
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}
	other := parse(t, "Tree/Simple/8")[0]
	prior := []Learned{{Key: Key{Bucket: b}, Action: actions.Default, Calls: 9000, CostNs: 100e3, Default: 100e3,
		Evidence: map[actions.Action]Estimate{actions.Default: {N: 50, MeanNs: 100e3}, other: {N: 9, MeanNs: 300e3}}}}
	p := newCaller(t, agents.NameDefault, Config{Explore: true, SampleEvery: 1}, CommJoined{Prior: prior}, b, 0b111_111)
	check := func(what string, all []Learned, factor float64) {
		t.Helper()
		if len(all) != 1 || len(all[0].Evidence) != 2 || math.Abs(all[0].Evidence[other].MeanNs/all[0].Default/factor-1) > 0.01 || all[0].Evidence[other].N != 9 {
			t.Errorf("%s: %+v", what, all)
		}
	}
	play := func(calls int, ns state.Ns) (all []Learned) {
		for range calls {
			now := state.Ns(p.made) * 1000
			p.tell(now, uint64(p.made), p.next(), actions.Default, ns)
			all = append(all, p.core.Step(now, Tick{}).Learned...)
		}
		return all
	}
	check("after 10,000 calls", play(learnEvery, 150e3), 3)
	play(200, 400e3)
	if p.core.Totals().Alarms == 0 {
		t.Fatal("costs nearly trebled, and nobody noticed")
	}
	check("behind an alarm", p.core.Step(1e12, CommLeft{Comm: 1}).Learned, 3)
}

// What a person advises is a start for learners, and no measurement that the store might show.
func TestAdviceIsNoMeasurement(t *testing.T) {
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}
	other := parse(t, "Tree/Simple/8")[0]
	prior := []Learned{{Key: Key{Bucket: b}, Action: other, CostNs: 0.9e6, Default: 1e6,
		Evidence: map[actions.Action]Estimate{actions.Default: {N: 1, MeanNs: 1e6}, other: {N: 1, MeanNs: 0.9e6}}}}
	p := newCaller(t, agents.NameDefault, Config{Explore: true, SampleEvery: 1}, CommJoined{Prior: prior}, b, 0b111_111)
	for range 40 {
		p.tell(1, uint64(p.made), p.next(), actions.Default, 100_000)
	}
	p.core.Step(2, Marks{Comm: 1, Bucket: b, Set: 0b111_110})
	if known := p.core.comms[1].prior(b); known.Calls != 0 || math.Abs(known.Evidence[other].MeanNs/known.Default-0.9) > 0.01 {
		t.Errorf("after late marks %+v is known", known)
	}
	for range 40 {
		p.tell(3, uint64(p.made), p.next(), actions.Default, 100_000)
	}
	if all := p.core.Step(4, CommLeft{Comm: 1}).Learned; len(all) != 1 || len(all[0].Evidence) != 1 || all[0].Calls != 80 {
		t.Errorf("%+v", all)
	}
}
