package tuner

import (
	"math"
	"math/bits"

	"dynamiccl/state"
)

// WatchNs is what timing a call costs it: two CUDA events in its stream, 5.0 to 5.3 us of calls back to back (4x H200,
// AllReduce, AllGather and ReduceScatter of 1 KiB to 4 MiB; docs/figures/gpu-samples-*.jsonl). Kernel events cost less.
const WatchNs = 5300

// maxSampleEvery bounds the epochs between two samples of a settled communicator.
const maxSampleEvery = 8192 / epochCalls

// Calls that may be timed in one go while something is tried: a communicator's first ones, when all is to be learnt (43 ms
// of events in its life), and later ones; and how many must have been saved for it to begin again.
const (
	firstBurst = 8192
	burstCalls = 1024
	leastBurst = 128
)

// watch decides when a communicator is sampled. Settled ones, one epoch in so many that sampling makes calls longer by a
// given share in the mean. Trials, and where they cannot be timed one by one all calls while they are under way, are watched
// for as long as another share lasts, which is saved up in between: so trials of all buckets come in bursts. Shares are of
// each call and not of the time: else large calls would pay for watching small ones, which then are slower than without us.
type watch struct {
	dearer float64 // what watching adds to a call over what the call takes, mean of late calls; 0: not known yet
	every  int     // epochs between samples while settled; 0: not known yet
	saved  float64 // of the share that trials may cost, in calls
	waits  bool    // it is used up
}

// observe takes in a sampled call that took so long, and how many calls were made since the one before it. share is what
// trials may cost, and more than what settled communicators are sampled for: that is taken from it, and nothing would be
// left for trials.
func (w *watch) observe(ns state.Ns, made uint64, share float64) {
	const weight = 1.0 / 32
	cost := WatchNs / float64(max(1, ns))
	if w.dearer == 0 {
		w.dearer, w.saved = cost, firstBurst*cost
	}
	w.dearer += weight * (cost - w.dearer)
	w.charge(cost, made, share)
}

// slow takes in one of which it is known that it took its host long.
func (w *watch) slow(made uint64, share float64) {
	if w.dearer > 0 {
		w.charge(WatchNs/float64(slowNs), made, share)
	}
}

func (w *watch) charge(cost float64, made uint64, share float64) {
	w.saved += min(share*float64(made), max(0, burstCalls*w.dearer-w.saved)) - cost
	switch {
	case w.saved <= 0:
		w.waits = true
	case w.saved >= leastBurst*w.dearer:
		w.waits = false
	}
}

// settle gives the epochs between two sampled ones. It follows at once where calls got shorter and the share would be
// passed, and late where they got longer, so that plans do not flap.
func (w *watch) settle(share float64) int {
	if w.dearer <= 0 { // no call seen yet
		return 1
	}
	need := int(math.Ceil(min(w.dearer/share, maxSampleEvery)))
	if need > w.every || 4*need < w.every {
		w.every = 1 << bits.Len(uint(need-1))
	}
	return w.every
}
