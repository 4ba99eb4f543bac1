package tunersim

import (
	"math"

	"dynamiccl/actions"
)

// ncclChannels is NCCL's own number of channels: all of the communicator's, fewer while threads would have less than
// their threshold of bytes (src/enqueue.cc, getCollInfo's topology defaults).
func (m *Machine) ncclChannels(c call, ranks int, alg actions.Algorithm, proto actions.Protocol) float64 {
	need := ncclThreads[proto] * ncclThreadThresholds[proto]
	if alg == actions.Ring && proto == actions.LL {
		need *= float64(ranks)
	}
	return max(1, min(m.MaxChannels, math.Floor(c.bytes/need)))
}

// ncclPairs are what NCCL itself weighs.
var ncclPairs = []actions.Action{
	{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL},
	{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL128},
	{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.Simple},
	{Path: actions.PathCollective, Algorithm: actions.Tree, Protocol: actions.LL},
	{Path: actions.PathCollective, Algorithm: actions.Tree, Protocol: actions.LL128},
	{Path: actions.PathCollective, Algorithm: actions.Tree, Protocol: actions.Simple},
	{Path: actions.PathCollective, Algorithm: actions.NVLS, Protocol: actions.Simple},
	{Path: actions.PathCollective, Algorithm: actions.PAT, Protocol: actions.Simple},
}

// choose is NCCL's choice: the least of a copy of the quiet costs that is wrong by its beliefs. Conditions do not move it
// (NCCL does not look), and it asks for NCCL's own channels.
func (m *Machine) choose(c call) actions.Action {
	quiet := Quiet()
	best, least := ncclPairs[0], math.Inf(1)
	for _, a := range ncclPairs {
		pair := pairOf(a.Algorithm, a.Protocol)
		if m.belief.bias[pair] > never {
			continue
		}
		p, ok := m.collective(&quiet, c, a)
		if !ok {
			continue
		}
		p.wobble = m.belief.bias[pair] + m.belief.tilt[pair]*(c.log2Bytes-17)
		if ns := p.cost(m, 0).SignalNs; ns < least {
			best, least = a, ns
		}
	}
	return best
}

// never is a bias that keeps NCCL from a pair altogether, as its -1 marks do.
const never = 50
