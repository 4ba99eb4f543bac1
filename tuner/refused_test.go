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
