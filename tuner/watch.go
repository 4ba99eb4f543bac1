package tuner

import (
	"math"
	"math/bits"

	"dynamiccl/state"
)

// watchNs is what timing a call costs it: two CUDA events in its stream, 3.0 to 3.1 us of calls back to back (4x H200,
// AllReduce of 1 to 64 KiB; docs/figures/gpu-samples-*.jsonl). Kernel events cost less.
const watchNs = 3100

// maxSampleEvery bounds the epochs between two samples of a settled communicator: 4096 calls.
const maxSampleEvery = 256

// watch decides how often a settled communicator is sampled, so that sampling costs at most a share of its calls' time.
type watch struct {
	meanNs float64 // of late calls
	every  int     // epochs; 0: not known yet
}

// observe takes in a call that took so long.
func (w *watch) observe(ns state.Ns) {
	const weight = 1.0 / 32
	if w.meanNs == 0 {
		w.meanNs = float64(ns)
	}
	w.meanNs += weight * (float64(ns) - w.meanNs)
}

// settle gives the epochs between two sampled ones. It follows at once where calls got shorter and the share would be
// passed, and late where they got longer, so that plans do not flap.
func (w *watch) settle(share float64) int {
	if w.meanNs <= 0 { // no call seen yet
		return 1
	}
	need := int(math.Ceil(min(watchNs/(share*w.meanNs), maxSampleEvery)))
	if need > w.every || 4*need < w.every {
		w.every = 1 << bits.Len(uint(need-1))
	}
	return w.every
}
