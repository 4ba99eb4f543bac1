package actions

import "strings"

// ReductionOrderMatters says whether the collective sums, and so whether its actions may give different bits, since
// floating-point sums depend on their order. Integers, max and min are exact in any order, but getCollInfo is told neither
// data type nor operation, so a tuner cannot use that. All ranks of one call get identical bits under every action: an element
// is summed along one order, once or in rank order on every rank, never beginning with one's own.
//
// What decides the order of sums in NCCL (src/device, v2.30.7):
//   - the algorithm: around a ring, up a tree, in the switch (NVLS, with its own accumulation), over collnet;
//   - nChannels: a buffer is cut into one part a channel and every channel has its own ring or tree, so the part that
//     an element falls into decides its order;
//   - the protocol: it sets the chunk size, and the chunk that an element falls into decides at which rank its sum
//     starts in the ring's rotation.
//
// So any two actions may differ, and NCCL does not tell which its own choice is: under --fixed-numerics such a collective has
// the default alone.
func ReductionOrderMatters(c Collective) bool {
	switch c.Plain() {
	case Broadcast, AllGather, AllToAll:
		return false
	}
	return true // Reduce, ReduceScatter, AllReduce; a collective that we do not know may sum
}

// Numerics is an action's class: in which order it adds up. A pure function of the action, the collective, its size and whether
// nodes have several ranks. Integers of all types, max and min are exact in any class.
type Numerics string

// Classes. Those of NCCL's algorithms are named after them ("nccl-ring").
const (
	NoSums        Numerics = "no-sums"    // the collective copies
	RankOrder     Numerics = "rank-order" // ours: in the order of ranks, in float or wider, rounded once
	NodeOrder     Numerics = "node-order" // ours: the ranks of each node, rounded, then the nodes
	NCCLDefault   Numerics = "nccl-default"
	NCCLSymmetric Numerics = "nccl-symmetric"

	ncclNumerics = "nccl-"
)

// Numerics is the class of the action where a collective of so many bytes runs it. severalANode: nodes, more than one, have several
// ranks.
func (a Action) Numerics(c Collective, bytes uint64, severalANode bool) Numerics {
	switch {
	case !ReductionOrderMatters(c):
		return NoSums
	case a.Path == PathGIN && severalANode && !a.Flat && (c.Plain() != AllReduce || bytes >= GINSlotBytes):
		return NodeOrder // kernels/gin/rails_sum.cuh
	case a.Ours():
		return RankOrder
	case a.Path == PathSymmetric:
		return NCCLSymmetric
	case a.Path == PathCollective:
		return Numerics(ncclNumerics + strings.ToLower(a.Algorithm.String()))
	}
	return NCCLDefault
}

// SameBits says that all actions of the class give the same bits. Of NCCL's no class does: its number of channels and
// protocol are part of the order, and what its default is NCCL does not tell.
func (n Numerics) SameBits() bool { return n == NoSums || n == RankOrder || n == NodeOrder }

// Means says in words what a class is.
func (n Numerics) Means() string {
	switch n {
	case NoSums:
		return "nothing is added up, so no choice changes a bit"
	case RankOrder:
		return "in the order of ranks, in float or wider, rounded once: all our kernels of this class, and all ranks, give the same bits"
	case NodeOrder:
		return "half, float and bfloat16 in the order of each node's ranks, rounded, then in that of nodes: the same bits whatever the CTAs; other types, and of AllReduce what does not divide among the ranks, in the order of ranks"
	case NCCLDefault:
		return "in the order of what NCCL chooses, which it does not tell; all ranks have the same bits"
	case NCCLSymmetric:
		return "in the order of NCCL's symmetric kernel; all ranks have the same bits"
	}
	return "in the order of NCCL's algorithm, which its protocol and channels change as well; all ranks have the same bits"
}
