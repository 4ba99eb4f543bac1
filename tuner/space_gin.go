package tuner

import (
	"dynamiccl/actions"
	"dynamiccl/state"
)

// ginCTAs are the numbers of CTAs that are tried of our kernels on GIN, up to DYN_GIN_MAX_BLOCKS of kernels/gin; of hierarchical
// ones these are channels, up to DYN_GIN_CHANNELS. Up to 4 each has a context of its own, where NCCL grants so many; more share them.
var ginCTAs = []uint8{1, 2, 4, 8, 16}

// Flat kernels are also tried with all CTAs on one context, from as many CTAs on as NCCL has contexts at most. A set has three choices
// more by that and not one for each number, since each is a trial in a running program: how contexts pay shows between the two ends,
// all and one, and what lies between is what few CTAs have. With fewer CTAs there is next to nothing to share. sweep takes any number.
const (
	leastSharing   = actions.MaxContexts
	sharedContexts = 1
)

// ginCTABytes is what a CTA of a quarter of the threads covers of a call in one pass.
const ginCTABytes = actions.CTAThreads / 4 * 16

// railChannels are as many as hierarchical kernels have (DYN_GIN_CHANNELS of kernels/gin/pipes.h): an action of more CTAs runs them.
const railChannels = 8

// railRoles are the CTAs of a channel (DYN_GIN_ROLES), all of which want a place on the GPU.
const railRoles = 3

// hasRails says whether kernels on GIN are hierarchical in such a bucket, but where an action wants the flat one.
func hasRails(b state.Bucket, shape state.Shape) bool {
	return shape.Nodes >= 2 && shape.Ranks > shape.Nodes && (b.Collective != actions.AllReduce || 1<<b.Log2Bytes >= actions.GINSlotBytes)
}

// OnRails gives a set both ways of the kernels on GIN where nodes have several ranks each: for all collectives but small AllReduces there
// is a hierarchical kernel then (docs/design.md, decision 30), of those that add up for common types alone, which a bucket does not know.
// Which is faster is the network's affair. Hierarchical ones have no contexts to share, for the three CTAs of a channel do already, and no
// more than railChannels.
func OnRails(set []actions.Action, b state.Bucket, shape state.Shape) []actions.Action {
	if !hasRails(b, shape) {
		return set
	}
	both := make([]actions.Action, 0, 2*len(set))
	for _, a := range set {
		if a.Path != actions.PathGIN || a.Channels <= railChannels && a.Contexts == 0 {
			both = append(both, a)
		}
		if a.Path == actions.PathGIN {
			a.Flat = true
			both = append(both, a)
		}
	}
	return both
}

// ginSet lists our kernels on GIN that every rank can run in the bucket, up to the first number of CTAs that covers its
// smallest call in one pass. A collective has one kernel, so an action names the backend, and contexts, alone.
func ginSet(b state.Bucket, marks MarkSet) (set []actions.Action) {
	for backend := actions.Backend(1); backend < actions.NumBackends; backend++ {
		a := actions.Action{Path: actions.PathGIN, Backend: backend}
		if !marks.Has(a) {
			continue
		}
		for _, n := range ginCTAs {
			a.Channels, a.Contexts = n, 0
			set = append(set, a)
			if a.Contexts = sharedContexts; n >= leastSharing && marks.Has(a) {
				set = append(set, a)
			}
			if uint64(n)*ginCTABytes >= 1<<b.Log2Bytes {
				break
			}
		}
	}
	return set
}
