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

// A learner that chooses nothing measures NCCL's default alone. What others have chosen it neither runs nor writes over, though ranks say
// late what they can run; what is known of NCCL's default alone goes on being told.
func TestObserverKeepsChoices(t *testing.T) {
	chosen := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}
	best := parse(t, "Tree/Simple/8")[0]
	for _, c := range []struct {
		what    string
		stored  actions.Action
		observe bool
		told    int
	}{{"a choice", best, true, 0}, {"NCCL's default", actions.Default, true, 1}, {"a choice, by a learner that may choose", best, false, 1}} {
		prior := []Learned{{Key: Key{Bucket: chosen}, Action: c.stored, Calls: 9000, CostNs: 50e3, Default: 100e3,
			Evidence: map[actions.Action]Estimate{actions.Default: {N: 50, MeanNs: 100e3}, best: {N: 50, MeanNs: 50e3}}}}
		e := CommJoined{Prior: prior, InForce: map[state.Bucket]actions.Action{chosen: c.stored}}
		p := newCaller(t, agents.NameDefault, Config{Explore: true, SampleEvery: 1, Observe: c.observe}, e, chosen, 0b111_111)
		for i := range 400 {
			p.tick(1)
			a := p.next()
			if c.observe && a != actions.Default {
				t.Fatalf("%s: call %d runs %v", c.what, i, a)
			}
			p.tell(1, uint64(p.made), a, a, 100e3)
			if i == 200 {
				p.core.Step(2, Marks{Comm: 1, Bucket: chosen, Set: 0b111_110})
			}
		}
		if known := p.core.comms[1].prior(chosen); c.told == 0 && (known == nil || known.Action != best || known.Calls != 9000) {
			t.Errorf("%s: of the bucket is known %+v", c.what, known)
		}
		if told := append(p.learned, p.core.Step(3, CommLeft{Comm: 1}).Learned...); min(len(told), 1) != c.told {
			t.Errorf("%s: %d records are told, the last of them %+v", c.what, len(told), told[max(len(told)-1, 0):])
		}
	}
}
