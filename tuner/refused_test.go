package tuner

import (
	"slices"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// What the store refuses is never tried, by no learner and whatever marks come or conditions change, and whoever writes the bucket down anew refuses it, too.
func TestRefusedIsNeverTried(t *testing.T) {
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}
	best := parse(t, "Tree/Simple/8")[0]
	for _, learner := range silentLearners {
		for _, refused := range [][]actions.Action{nil, {best}} {
			prior := []Learned{{Key: Key{Bucket: b}, Action: actions.Default, Calls: 9000, CostNs: 100e3, Default: 100e3,
				Evidence: map[actions.Action]Estimate{actions.Default: {N: 50, MeanNs: 100e3}}, Refused: refused}}
			p := newCaller(t, learner, Config{Explore: true, SampleEvery: 1}, CommJoined{Prior: prior, InForce: map[state.Bucket]actions.Action{b: best}}, b, 0b111_111)
			tried := 0
			for i := range 4000 {
				now, a, ns := state.Ns(p.made)*1000, p.next(), state.Ns(100e3)
				if a == best {
					tried++
					ns = 50e3
				}
				if i > 2000 { // another condition
					ns *= 3
				}
				p.tell(now, uint64(p.made), a, a, ns)
				p.tick(now)
				if i == 500 {
					p.core.Step(now, Marks{Comm: 1, Bucket: b, Set: 0b111_110})
				}
			}
			if v := p.core.Buckets()[0]; (tried > 0) != (refused == nil) || !slices.Equal(v.Refused, refused) {
				t.Errorf("%s, %v refused, shown %v: tried %d times", learner, refused, v.Refused, tried)
			}
			if l := p.core.Step(1e12, CommLeft{Comm: 1}).Learned; len(l) != 1 || !slices.Equal(l[0].Refused, refused) {
				t.Errorf("%s: %v refused, and then %+v", learner, refused, l)
			}
		}
	}
}

// What is refused is in no first plan: not what an earlier daemon had in force, and not a choice that has become a refused one by having fewer CTAs.
func TestRefusedIsInNoFirstPlan(t *testing.T) {
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}
	tree, wide, narrow := parse(t, "Tree/Simple/8")[0], parse(t, "lsa/oneshot/32")[0], parse(t, "lsa/oneshot/16")[0]
	prior := func(a actions.Action, refused ...actions.Action) []Learned {
		return []Learned{{Key: Key{Bucket: b}, Action: a, Calls: 9000, CostNs: 50e3, Default: 100e3, Refused: refused,
			Evidence: map[actions.Action]Estimate{actions.Default: {N: 50, MeanNs: 100e3}, a: {N: 50, MeanNs: 50e3}}}}
	}
	for _, c := range []struct {
		name   string
		joined CommJoined
	}{
		{"in force", CommJoined{Prior: prior(actions.Default, tree), InForce: map[state.Bucket]actions.Action{b: tree}}},
		{"fewer CTAs", CommJoined{Prior: prior(wide, narrow), MaxCTAs: 16}},
	} {
		c.joined.Explore, c.joined.EventTimed = true, true
		core := kernelCore(t, Config{Explore: true}, c.joined)
		core.Step(0, KernelsOpen{Comm: 1})
		for _, p := range core.Step(1e9, Tick{}).Plans {
			for _, e := range p.Entries {
				t.Errorf("%s: the first plan has %+v", c.name, e)
			}
		}
	}
}

// What a person refuses is tried no more and leaves the plan at once; what was measured of others stays, and a rule for it is passed over.
func TestAdvisedAgainst(t *testing.T) {
	b, early := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}, state.Bucket{Collective: actions.AllReduce, Log2Bytes: 20}
	best, other := parse(t, "Tree/Simple/8")[0], parse(t, "Ring/Simple/8")[0]
	var prior []Learned
	for _, b := range []state.Bucket{b, early} {
		prior = append(prior, Learned{Key: Key{Bucket: b}, Action: best, Calls: 9000, CostNs: 50e3, Default: 100e3,
			Evidence: map[actions.Action]Estimate{actions.Default: {N: 50, MeanNs: 100e3}, best: {N: 50, MeanNs: 50e3}, other: {N: 50, MeanNs: 70e3}}})
	}
	p := newCaller(t, "ucb", Config{Explore: true, SampleEvery: 1}, CommJoined{Prior: prior}, b, 0b111_111)
	run := func(from, calls int) (tried int) {
		for i := range calls {
			now, a, ns := state.Ns(from+i)*1000, p.next(), state.Ns(100e3)
			if a == best {
				tried, ns = tried+1, 50e3
			}
			p.tell(now, uint64(p.made), a, a, ns)
			p.tick(now)
		}
		return tried
	}
	if run(1, 500) == 0 {
		t.Fatal("the stored choice never ran")
	}
	l := Learned{Key: Key{Bucket: b}, Action: best, CostNs: 9e5, Default: 1e6, Evidence: map[actions.Action]Estimate{actions.Default: {N: 1, MeanNs: 1e6}, best: {N: 1, MeanNs: 9e5}}}
	p.core.Step(501*1000, Advised{Comm: 1, Prior: []Learned{Refusal(Key{Bucket: b}, best), Refusal(Key{Bucket: early}, best), l}})
	p.tick(502 * 1000)
	if len(p.core.comms[1].early) != 0 {
		t.Errorf("the plan still has %+v", p.core.comms[1].early)
	}
	if n := run(503, 2000); n != 0 {
		t.Errorf("it ran %d times more", n)
	}
	v := p.core.Buckets()[0]
	if !slices.Equal(v.Refused, []actions.Action{best}) || len(v.Choices) < 2 {
		t.Errorf("%+v", v)
	}
	for _, l := range p.core.Step(1e12, CommLeft{Comm: 1}).Learned {
		if _, known := l.Evidence[best]; known || l.Action == best || !slices.Equal(l.Refused, []actions.Action{best}) || l.Evidence[other].N == 0 {
			t.Errorf("the store is told %+v", l)
		}
	}
}
