package agents

import (
	"math"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// The policy sees machines, actions and measurements as features, never as slots of one machine: any rank count, any
// size of action set. All features are of order 1.

// Widths of the policy's inputs.
const (
	ActionWidth   = staticWidth + evidenceWidth // what is known of one action
	ContextWidth  = 46                          // of the bucket and its machine
	TokenWidth    = 30                          // of one observed call
	staticWidth   = 43
	evidenceWidth = 9
)

// clip keeps a feature within [-limit, limit].
func clip(x, limit float64) float64 { return min(limit, max(-limit, x)) }

// octaves is log2(n)/5: 1 channel is 0, 32 are 1.
func octaves(n uint8) float64 { return math.Log2(max(1, float64(n))) / 5 }

// families of algorithms that share a shape of cost: around a ring, up and down a tree, in the switch, other.
const (
	familyRing = iota
	familyTree
	familySwitch
	familyOther
)

func family(a actions.Algorithm) int {
	switch a {
	case actions.Ring:
		return familyRing
	case actions.Tree:
		return familyTree
	case actions.NVLS, actions.NVLSTree:
		return familySwitch
	}
	return familyOther
}

// encodeAction writes what an action is, [staticWidth]. top is the greatest channel number of its set, CTAs left out.
func encodeAction(dst []float64, a actions.Action, top uint8) {
	clear(dst)
	put := func(i int, x float64) { dst[i] = x }
	put(0, 1)
	if a.Path != actions.PathDefault {
		put(int(a.Path), 1) // 1..4
	}
	c := octaves(a.Channels)
	switch {
	case a.Channels == 0:
		put(23, 1)
	default:
		o := octaves(top) - c
		put(21, c)
		put(22, c*c)
		put(34, o)
		put(35, o*o)
	}
	if a.Path == actions.PathCollective {
		f, p := family(a.Algorithm), int(a.Protocol)
		put(5+f, 1)
		put(9+p, 1)
		put(12+3*min(f, 2)+p, 1)
		put(24+p, c)
		put(27+p, c*c)
		if f <= familyTree {
			put(30+f, c)
			put(32+f, c*c)
		}
	}
	if a.Warps != 0 {
		t := math.Log2(float64(a.Warps)*actions.WarpThreads/256) / 3
		put(36, 1)
		put(37, t)
		put(38, t*t)
	}
	switch a.Backend {
	case actions.BackendGDAKI:
		put(39, 1)
	case actions.BackendProxy:
		put(40, 1)
	}
	switch a.Path {
	case actions.PathSymmetric: // likewise by what they are near to: whether flags are inline, and whether the switch has a part
		switch a.Symmetric {
		case actions.SymmetricAny:
		case actions.SymmetricLL, actions.SymmetricAGxLL:
			put(9+int(actions.LL), 1)
		case actions.SymmetricLLMC, actions.SymmetricAGxLLMC:
			put(9+int(actions.LL), 1)
			put(5+familySwitch, 1)
		case actions.SymmetricST, actions.SymmetricLD, actions.SymmetricRSxLDAGxST:
			put(9+int(actions.Simple), 1)
		case actions.SymmetricSTMC, actions.SymmetricLDMC, actions.SymmetricRSxLDMC:
			put(9+int(actions.Simple), 1)
			put(5+familySwitch, 1)
		default: // by the copy engine of an SM
			put(9+int(actions.LL128), 1)
		}
	case actions.PathGIN: // contexts have no feature: it would make every trained policy another one's. What differs in them alone is told apart by what was measured, and by the belief (estimate_gin.go)
		put(41, c)
	case actions.PathLSA:
		put(42, c)
		// Our kernels are told apart where NCCL's choices say their protocol, which this path has not: a feature of their own
		// would make every trained policy another one's. One shot is what policies knew as the path.
		switch a.Kernel {
		case actions.TwoShot:
			put(9+int(actions.LL128), 1)
		case actions.Bulk, actions.Direct:
			put(9+int(actions.Simple), 1)
		}
	}
}

// knots of the size features: log2 of bytes.
var knots = []float64{10, 13, 16, 19, 22, 25, 28}

// machineWidth is how much of the context never changes.
const machineWidth = 26

// encodeMachine writes what a bucket and its machine are, [machineWidth].
func encodeMachine(dst []float64, b state.Bucket, t state.Topology, set int) {
	clear(dst)
	dst[0] = 1
	size := float64(b.Log2Bytes)
	dst[1] = (size - 16) / 8
	for i, k := range knots { // hats: a piecewise linear function of size
		d := math.Abs(size-k) / 3
		if i == 0 && size < k || i == len(knots)-1 && size > k {
			d = 0
		}
		dst[2+i] = max(0, 1-d)
	}
	if c := b.Collective.Plain(); c <= actions.AllReduce { // AllToAll came after the policies were trained: it is none of these
		dst[9+int(c)] = 1
	}
	dst[14] = math.Log2(max(1, float64(t.Ranks))) / 4
	nodes := max(1, float64(t.Nodes))
	dst[15] = math.Log2(nodes) / 3
	dst[16] = math.Log2(max(1, float64(t.Ranks)/nodes)) / 3
	if t.Nodes <= 1 {
		dst[17] = 1
	}
	for i, name := range state.Transports { // one that is not known is none of these
		if t.Transport == name {
			dst[18+i] = 1
		}
	}
	if t.Transport == "" {
		dst[22] = 1
	}
	dst[23] = math.Log2(1+float64(t.NICs)) / 3
	if t.NICs > 0 {
		dst[24] = 1
	}
	dst[25] = math.Log2(float64(max(1, set))) / 6
}
