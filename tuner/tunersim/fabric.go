package tunersim

import (
	"math"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// Machine is a synthetic fabric: parameters of an alpha-beta cost model, drawn by RandomMachine or fitted by FitMachine.
// Times are nanoseconds, bandwidths GB/s, which is bytes a nanosecond.
//
// The cost of a collective is latency (launch, then hops by link and protocol, then what each channel adds) and
// transfer (bytes over what channels and links carry, with what more channels than a link can use cost), joined by
// Overlap, times a smooth wobble that no formula explains.
type Machine struct {
	Name       string
	NCCL       string
	Shape      state.Shape
	NICs       int // a node, used by the model
	ShownNICs  int // what learners are told; 0: not known
	Generation Generation

	BaseNs     PairValues // launch and first step
	IntraHopNs PairValues // one step between GPUs of a node
	InterHopNs PairValues // one step between nodes
	ChannelGBs PairValues // one channel's copy and reduction rate inside a node
	WireShare  PairValues // of a saturated link that is payload
	LinkGBs    float64    // a GPU's link inside the node, one direction
	NetGBs     float64    // a node's network, one direction, all NICs
	NetChanGBs float64    // one channel over the network (a TCP connection, a queue pair)

	MaxChannels float64 // of the communicator: larger choices are cut to it
	SatChannels float64 // channels that fill the bottleneck link
	Gamma       float64 // congestion: relative loss of a filled link for each further SatChannels
	ChannelNs   float64 // latency that each further channel adds
	ProxyNs     float64 // a network hop's extra for each further channel that the proxy thread serves
	Cores       float64 // of a node; proxy threads share them
	QuantumNs   float64 // the scheduler's, multiples of which a proxy thread waits under CPU load
	Overlap     float64 // p of (latency^p + transfer^p)^(1/p); 1: nothing overlaps
	ChainShare  float64 // of a hop that a step of Broadcast and Reduce costs: calls in a row overlap in a pipeline
	ChunkBytes  float64 // what Simple sends at a time: a pipeline's stages wait for it

	NVLinkWarps float64 // the best number of warps a channel inside a node
	NetWarps    float64 // and over a network
	WarpLoss    float64 // relative loss at twice or half of it
	WarpNs      float64 // barrier cost of each warp

	LSA LSAParams
	GIN GINParams

	wobble  [numPairs]wave // of the collective path, then LSA and GIN
	device  [2]wave
	belief  belief
	scatter scatter
	grid    [actions.NumAsked][]actions.Action // forced choices
}

// Generation of the GPU, the row of NCCL's tuning tables.
type Generation uint8

// Generations that NCCL has tuning constants for.
const (
	Volta Generation = iota
	Ampere
	Hopper
	Blackwell

	numGenerations = 4
)

const numPairs = actions.NumAlgorithms * actions.NumProtocols

// PairValues are values by algorithm and protocol.
type PairValues [numPairs]float64

func pairOf(a actions.Algorithm, p actions.Protocol) int { return int(a)*actions.NumProtocols + int(p) }

// LSAParams are of load/store kernels over NVLink.
type LSAParams struct {
	LaunchNs  float64
	BarrierNs float64 // all ranks
	CTAGBs    float64 // what one CTA moves
}

// GINParams are of put/signal kernels over the network.
type GINParams struct {
	LaunchNs    float64
	RoundTripNs [actions.NumBackends]float64 // put, signal and the signal back
	PutNs       float64                      // to issue one put
	ContextGBs  float64                      // what one context moves
}

// wave is a smooth idiosyncrasy: a sum of two waves over log2 bytes and log2 channels.
type wave struct{ amp, perByte, perChannel, phase [2]float64 }

func (w *wave) at(c actions.Collective, log2Bytes, log2Channels float64) float64 {
	v := 0.0
	for i := range w.amp {
		if w.amp[i] != 0 {
			v += w.amp[i] * math.Sin(w.perByte[i]*log2Bytes+w.perChannel[i]*log2Channels+w.phase[i]*float64(c+1))
		}
	}
	return v
}

// belief is how NCCL's own cost model errs: log factors by pair, constant and per octave away from 128 KiB.
type belief struct{ bias, tilt PairValues }

// scatter is what a table's entries differ by without any structure: how well medians of real measurements repeat.
type scatter struct {
	sigma       float64
	outlierProb float64 // part of the entries that were measured in a bad moment
	outlierLog  float64 // and by how much
}

// Topology is what learners are told.
func (m *Machine) Topology() state.Topology { return state.Topology{Shape: m.Shape, NICs: m.ShownNICs} }

// Actions are the forced choices that a table of this machine has for a collective.
func (m *Machine) Actions(c actions.Collective) []actions.Action { return m.grid[c] }

// ranksOf gives what steps are counted from, also for shapes that say nothing.
func ranksOf(s state.Shape) (ranks, nodes, perNode int) {
	nodes = max(s.Nodes, 1)
	ranks = max(s.Ranks, nodes, 2)
	return ranks, nodes, max(ranks/nodes, 1)
}
