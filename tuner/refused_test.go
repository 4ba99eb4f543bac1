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
