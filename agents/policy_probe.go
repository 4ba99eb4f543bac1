package agents

import (
	"math"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// probe runs a fixed series of calls through a policy and gives what it thinks then: a fingerprint of the weights
// together with the way in which this program turns calls into features.
func probe(w *PolicyWeights, opt PolicyOptions) []float64 {
	set := []actions.Action{actions.Default}
	for _, algorithm := range []actions.Algorithm{actions.Tree, actions.Ring, actions.NVLS} {
		for _, protocol := range []actions.Protocol{actions.LL, actions.LL128, actions.Simple} {
			for _, channels := range []uint8{0, 2, 16} {
				set = append(set, actions.Action{Path: actions.PathCollective, Algorithm: algorithm, Protocol: protocol, Channels: channels})
			}
		}
	}
	set = append(set, actions.Action{Path: actions.PathLSA, Channels: 8, Warps: 16},
		actions.Action{Path: actions.PathGIN, Channels: 4, Backend: actions.BackendProxy})
	topology := state.Topology{Shape: state.Shape{Ranks: 16, Nodes: 2, Transport: "socket"}, NICs: 2}
	peers := NewPeers()
	opt.Tape = nil
	var out []float64
	var learners []*lstm
	for _, size := range []uint8{16, 20} {
		learners = append(learners, newLSTM(w, opt, Task{Set: set, Bucket: state.Bucket{Collective: actions.AllReduce, Log2Bytes: size},
			Topology: topology, Peers: peers}))
	}
	for call := range 40 {
		for i, l := range learners {
			l.Propose(1)
			at := call * (i + 3) % len(set)
			ns := 50e3 * (1 + 0.3*math.Sin(float64(at))) * (1 + 0.02*math.Cos(float64(call)))
			l.Observe(state.Observation{Action: set[at], SignalNs: state.Ns(ns), CounterNs: state.Ns(0.8 * ns)})
			if call == 20 {
				l.Shift(DiagnosisUnknown)
			}
		}
	}
	for _, l := range learners {
		if l.arms.samples[0].n == 0 {
			l.Observe(state.Observation{Action: actions.Default, SignalNs: 50e3, CounterNs: 40e3})
		}
		l.think()
		out = append(out, l.mean...)
	}
	return out
}
