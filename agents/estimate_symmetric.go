package agents

import "dynamiccl/actions"

// What the model of costs expects of NCCL's symmetric kernels by name (actions.PathSymmetric) on registered memory, over NCCL's
// default there, which is one of them at most sizes. Those that send flags with the data are it where latency counts and send
// half or less of what links carry where bytes do; the others wait for barriers, which counts in small calls alone.
//
// Round numbers from docs/figures/gpu-sweep-registered-2gpus-nccl2.32.3: 1 KiB to 64 MiB, three collectives (TestSymmetricOnTable).
// Without them learners tried one of 8 times the default's time at 16 MiB, and had nothing left to try others with.
const (
	symmetricFlags    = 2   // log cost of all bandwidth, with flags
	symmetricBarriers = 0.5 // and of all latency, with barriers
)

// symmetricMean is the expected log cost over NCCL's default; w is the size's bandwidthBound.
func symmetricMean(s actions.Symmetric, w float64) float64 {
	switch s {
	case actions.SymmetricAny:
		return 0
	case actions.SymmetricLL, actions.SymmetricAGxLL, actions.SymmetricLLMC, actions.SymmetricAGxLLMC:
		return symmetricFlags * w
	}
	return symmetricBarriers * (1 - w)
}
