package tuner

import (
	"dynamiccl/actions"
	"dynamiccl/state"
)

// namedSet lists what NCCL can be told by name to run on registered memory, NCCL's default first, and our own kernels last. A
// name has no number of channels. Whether NCCL has what it names is found out by asking: what it refuses leaves the marks.
func namedSet(b state.Bucket, marks MarkSet) []actions.Action {
	set := []actions.Action{actions.Default}
	for algo := range actions.Algorithm(actions.NumAlgorithms) {
		for proto := range actions.Protocol(actions.NumProtocols) {
			if a := (actions.Action{Path: actions.PathCollective, Algorithm: algo, Protocol: proto}); named(algo) && marks.Has(a) {
				set = append(set, a)
			}
		}
	}
	for s := actions.SymmetricLL; s < actions.NumSymmetric; s++ {
		if a := (actions.Action{Path: actions.PathSymmetric, Symmetric: s}); s.Names(b.Collective) && marks.Has(a) {
			set = append(set, a)
		}
	}
	return append(set, lsaSet(b, marks)...)
}

// named says which algorithms have bits of their own in the marks of registered memory; symmetric kernels have those of the others.
func named(a actions.Algorithm) bool {
	return a == actions.Tree || a == actions.Ring || a == actions.NVLS || a == actions.NVLSTree
}
