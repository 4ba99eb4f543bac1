package tuner

import (
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

// Calls of one size left GIN when its links became slow, which cost them more than they may lose for thousands of calls. Puts of CUDA graphs, which nobody
// chooses for, show that the links are as they were: the size is over GIN again soon after.
func TestPutsBringCallsBack(t *testing.T) {
	for _, name := range []string{agents.NameUCB, agents.NameLSTM, agents.NameCoordinateDescent} {
		p := newCaller(t, name, Config{Explore: true}, CommJoined{Shape: state.Shape{Ranks: 2, Nodes: 2}}, state.Bucket{Collective: actions.AllToAll, Log2Bytes: 16}, MarkGDAKI)
		p.ranks = 2
		const slow, quiet, end = 1000, 2200, 2600 // calls: links become slow, are as they were, and the last
		over := map[int]int{}                     // of a hundred calls
		for seq := range uint64(end) {
			a, us, nsPerByte := p.next(), 100.0, 0.0
			if seq >= slow && seq < quiet {
				nsPerByte = 5
			}
			if a.Path == actions.PathGIN {
				us = 20 + 600*nsPerByte
				over[int(seq/100)]++
			}
			now, noise := state.Ns(seq+1)*1e6, 1+0.02*float64(seq%3)
			p.tell(now, seq, a, a, state.Ns(us*1000*noise))
			bytes := uint64(256) << (seq % 4)
			for r := range p.ranks {
				p.core.Step(now, &Trip{Comm: 1, Number: uint32(seq), InGraph: true, Rank: r, Peer: 1 - r, Action: gin4, Bytes: bytes,
					SignalNs: state.Ns((10_000 + 2*nsPerByte*float64(bytes)) * noise)})
			}
			p.tick(now)
		}
		if over[slow/100-1] < 80 || over[quiet/100-1] > 5 {
			t.Errorf("%s: %v show nothing", name, over)
		}
		if got := over[end/100-1]; got < 80 {
			t.Errorf("%s: %d of 100 calls are over GIN 300 calls behind the fault, %v", name, got, over)
		}
	}
}
