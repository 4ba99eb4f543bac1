package tuner

import (
	"math"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

// Numbers of entries and plans that come round while something is tried, or in the record that a daemon takes over:
// what is learned is what is learned without.
func TestNumbersThatComeRound(t *testing.T) {
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 20}
	best := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL128, Channels: 8}
	play := func(lastID uint32, version uint64, seq uint64) (entries int, view BucketView) {
		p := newCaller(t, agents.NameUCB, Config{Explore: true}, CommJoined{LastID: lastID, Shape: state.Shape{Ranks: 2, Nodes: 2}}, b, 7<<(3*actions.Ring))
		p.version, p.ranks = version, 2
		for i := range 4000 {
			now := state.Ns(i+1) * 100_000
			p.version++ // plans for other sizes, under which this entry goes on
			if i%4 == 0 {
				if _, isNew := p.tick(now); isNew {
					entries++
				}
			}
			a := p.next()
			ns := state.Ns(200_000 + 500*(i%7))
			if a == best {
				ns = ns * 3 / 4
			}
			p.tell(now, seq+uint64(i), a, a, ns)
		}
		return entries, p.core.Buckets()[0]
	}
	_, plain := play(0, 0, 0)
	if plain.Choice != best {
		t.Fatalf("%v is chosen, want %v", plain.Choice, best)
	}
	for name, from := range map[string]struct {
		id      uint32
		version uint64
		seq     uint64
	}{
		"entries":         {math.MaxUint32 - 9, 0, 0},
		"plans":           {0, 1<<32 - 9, 0},
		"plans by half":   {0, 1<<31 - 9, 0},
		"sequence, by 32": {0, 0, 1<<32 - 99},
		"all":             {math.MaxUint32 - 9, 1<<32 - 9, 1<<56 - 5000},
	} {
		entries, got := play(from.id, from.version, from.seq)
		if got.Choice != best || got.Calls != plain.Calls || entries < 20 || len(got.Choices) != len(plain.Choices) {
			t.Errorf("%s: %v of %d choices after %d calls and %d entries; without %v of %d after %d", name, got.Choice, len(got.Choices), got.Calls, entries,
				plain.Choice, len(plain.Choices), plain.Calls)
		}
	}
}
