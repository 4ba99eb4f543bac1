package tuner

import (
	"slices"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// Where ranks answer no number of channels about an AllGather none is offered, and what was measured with one stands for the same without; all
// else has numbers.
func TestOwnGathers(t *testing.T) {
	counted := func(a actions.Action) bool { return a.Channels != 0 }
	ring8 := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.Simple, Channels: 8}
	for _, own := range []bool{false, true} {
		m := &comm{CommJoined: CommJoined{OwnGathers: own, Shape: state.Shape{Ranks: 2, Nodes: 2}}}
		for c := range actions.AllReduce + 1 {
			b := state.Bucket{Collective: c, Log2Bytes: 20}
			set := Choices(b, 0b111_111, m.channels(c), m.Shape, true)
			without := own && c == actions.AllGather
			if slices.ContainsFunc(set, counted) == without || without && len(set) != 1+2*3 {
				t.Errorf("%v, own %t: %v", c, own, set)
			}
			want, bare := ring8, ring8
			bare.Channels = 0
			if without {
				want = actions.Default // nobody has measured it
			}
			if got := m.fitting(b, ring8); got != want {
				t.Errorf("%v, own %t: %v stands for %v", c, own, got, ring8)
			}
			m.Prior = []Learned{{Key: Key{Shape: m.Shape, Bucket: b}, Evidence: map[actions.Action]Estimate{actions.Default: {N: 9, MeanNs: 20}, bare: {N: 9, MeanNs: 10}}}}
			if without {
				want = bare
			}
			if got := m.fitting(b, ring8); got != want {
				t.Errorf("%v, own %t, measured: %v stands for %v", c, own, got, ring8)
			}
			m.Prior = nil
		}
	}
}
