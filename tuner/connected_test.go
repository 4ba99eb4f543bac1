package tuner

import (
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

// On one node nothing is tried that NCCL would have to connect first; where the program has run it, in whatever call, it is, and a stored
// choice is in force all the same.
func TestTrialsConnectNothing(t *testing.T) {
	tree := actions.Action{Path: actions.PathCollective, Algorithm: actions.Tree, Protocol: actions.LL, Channels: 8}
	ring := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.Simple, Channels: 2}
	for _, name := range agents.Names() {
		for _, c := range []struct {
			nodes  int
			ran    []actions.Action // by calls of another size
			stored bool             // a tree is
			tries  bool             // of trees
		}{
			{1, []actions.Action{ring}, false, false},
			{1, []actions.Action{ring, tree}, false, true},
			{1, []actions.Action{ring}, true, true}, // it runs, so it is connected
			{2, []actions.Action{ring}, false, true},
		} {
			b, other := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 12}, state.Bucket{Collective: actions.AllReduce, Log2Bytes: 24}
			joined := CommJoined{Shape: state.Shape{Ranks: 1, Nodes: c.nodes}}
			if c.stored {
				joined.InForce = map[state.Bucket]actions.Action{b: tree}
			}
			p := newCaller(t, name, Config{Explore: true}, joined, b, 0b111_111)
			p.core.Step(0, Marks{Comm: 1, Bucket: other, Set: 0b111_111})
			for i, a := range c.ran {
				p.core.Step(0, &Sample{Comm: 1, Seq: uint64(i), Bucket: other, Bytes: 1 << 24, Ran: a, SignalNs: 1e6, EventTimed: true})
			}
			trees, rings, kept := 0, 0, false
			for seq := uint64(16); seq < 600; seq++ {
				now, a := state.Ns(seq*1e6), p.next()
				ran := a
				if a == actions.Default {
					ran = ring
				}
				p.tell(now, seq, a, ran, state.Ns(30_000+seq%7*100))
				e, isNew := p.tick(now)
				kept = kept || e.Base == tree
				for _, a := range e.Trials {
					switch {
					case !isNew || a == tree || a == actions.Default:
					case isTree(a):
						trees++
					default:
						rings++
					}
				}
			}
			if kept != c.stored && (c.stored || !c.tries) || name != agents.NameDefault && (rings == 0 || c.tries != (trees > 0)) {
				t.Errorf("%s on %d nodes, %v ran: %d trials of trees and %d of rings, stored choice in force: %v", name, c.nodes, c.ran, trees, rings, kept)
			}
		}
	}
}

// LL is a device kernel where NCCL asks for one; on registered memory it is a ring's name.
func TestDeviceKernelsNeedNoConnections(t *testing.T) {
	m := &comm{CommJoined: CommJoined{Shape: state.Shape{Ranks: 4, Nodes: 1}}}
	m.connected.ran(actions.Action{Path: actions.PathCollective, Algorithm: actions.Tree})
	for _, c := range []struct {
		collective actions.Collective
		action     string
		connects   bool
	}{
		{actions.AllReduce, "Ring/LL", false},
		{actions.AllReduceRegistered, "Ring/LL", true},
		{actions.AllReduce, "Ring/LL/4", true},
		{actions.AllReduce, "Tree/LL/4", false},
		{actions.AllReduce, "lsa/oneshot/4", false},
		{actions.AllReduceRegistered, "symmetric/AGxLL_R", false},
		{actions.AllReduce, "default", false},
	} {
		if got := m.connects(c.collective, parse(t, c.action)[0]); got != c.connects {
			t.Errorf("%s of %s: %v", c.action, c.collective, got)
		}
	}
}
