package actions

// Class is a numerics class. Two actions of equal class add the same numbers in the same order: the same bits for the
// same input in the same call (communicator, size, grouping with other calls, buffer registration, NCCL version).
// Actions of different class may give different bits, since floating-point sums depend on their order. Integers, max
// and min are exact in any class, but getCollInfo is told neither data type nor operation, so a tuner cannot use that.
//
// All ranks of one call get identical bits under every action here: an element is summed along one order, once or in
// rank order on every rank, never beginning with one's own. What a class does not promise is equality over sizes:
// NCCL cuts a buffer by its size.
type Class string

// ClassExact is the class of collectives that only move data.
const ClassExact Class = "exact"

// ReductionOrderMatters says whether the collective sums, hence whether its actions differ in class.
func ReductionOrderMatters(c Collective) bool {
	switch c.Plain() {
	case Broadcast, AllGather, AllToAll:
		return false
	}
	return true // Reduce, ReduceScatter, AllReduce; a collective that we do not know may sum
}

// ClassOf gives the numerics class of an action. What decides the order of sums in NCCL (src/device, v2.30.7):
//   - the algorithm: around a ring, up a tree, in the switch (NVLS, with its own accumulation), over collnet;
//   - nChannels: a buffer is cut into one part a channel and every channel has its own ring or tree, so the part that
//     an element falls into decides its order;
//   - the protocol: it sets the chunk size, and the chunk that an element falls into decides at which rank its sum
//     starts in the ring's rotation.
//
// So all three are in the class. It errs to one side: actions of different class may still agree (on two ranks any
// order gives the same bits), actions of equal class do not differ. NCCL's own choice is a class of its own, and so is
// NCCL's own number of channels, since NCCL does not tell what it will take.
//
// Our own kernels (PathLSA) are one class: each adds up an element's values in the order of ranks, in the wide type, and
// rounds once, whichever kernel it is and whatever the size and number of CTAs (kernels/device/all_reduce.cuh).
func ClassOf(c Collective, a Action) Class {
	if !ReductionOrderMatters(c) {
		return ClassExact
	}
	switch a.Path {
	case PathDefault:
		return Class(Default.String())
	case PathLSA:
		return Class(a.Path.String())
	}
	return Class(a.String())
}

// InClass keeps the actions of one class, in their order: what may be chosen under --numerics=fixed.
func InClass(c Collective, set []Action, class Class) []Action {
	var kept []Action
	for _, a := range set {
		if ClassOf(c, a) == class {
			kept = append(kept, a)
		}
	}
	return kept
}
