package actions

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
// So any two actions may differ, and NCCL does not tell which its own choice is: under --numerics=fixed such a collective has
// the default alone.
func ReductionOrderMatters(c Collective) bool {
	switch c.Plain() {
	case Broadcast, AllGather, AllToAll:
		return false
	}
	return true // Reduce, ReduceScatter, AllReduce; a collective that we do not know may sum
}
