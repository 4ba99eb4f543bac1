package daemon

import (
	"cmp"
	"maps"
	"slices"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/nccltuner"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// Bounds of what is kept about CUDA graphs, far beyond what a program does.
const (
	capturedComms = 4096
	capturedKinds = 4096 // of one communicator
)

// captured is one choice that went into CUDA graphs.
type captured struct {
	bucket state.Bucket
	action actions.Action
}

// capture counts a captured call of one rank. The communicator may not be known yet: programs capture right after they
// have made it. Or not any more: those that nobody knows make room. What the call costs only our kernels tell, when the graph runs them
// (tuner.Replay): NCCL's in graphs are not timed.
func (d *Daemon) capture(s *nccltuner.Sample) {
	id := tuner.CommID(s.CommID)
	counts := d.captured[id]
	if counts == nil {
		if len(d.captured) >= capturedComms {
			maps.DeleteFunc(d.captured, func(id tuner.CommID, _ map[captured]uint64) bool { return d.comms[id] == nil })
		}
		if len(d.captured) >= capturedComms {
			return
		}
		counts = map[captured]uint64{}
		d.captured[id] = counts
	}
	key := captured{s.Bucket, s.Action}
	if _, known := counts[key]; known || len(counts) < capturedKinds {
		counts[key]++
	}
}

// capturedOurs says that kernels of ours are among captured calls.
func capturedOurs(counts map[captured]uint64) bool {
	for k := range counts {
		if k.action.Ours() {
			return true
		}
	}
	return false
}

// capturedOf shows what a communicator's graphs hold.
func (d *Daemon) capturedOf(c *comm) []control.CapturedView {
	counts := d.captured[c.id()]
	if len(counts) == 0 {
		return nil
	}
	measured := map[state.Bucket]bool{}
	for _, v := range d.core.BucketsOf(c.id()) {
		measured[v.Bucket] = len(v.Choices) > 0 || v.Stored > 0
	}
	if version := c.ncclVersion(); version != 0 {
		for _, l := range d.stored(c.machine(d.cfg.Machine), c.beside(d.cfg.Machine), c.shape(), version) {
			measured[l.Key.Bucket] = measured[l.Key.Bucket] || l.Calls > 0
		}
	}
	ranks := len(c.view.Ranks) // each tells of the same calls
	return capturedViews(counts, ranks, measured, d.cfg.Fixed || c.fixedNumerics())
}

// capturedViews puts counts in order. With fixed numerics the user wants NCCL's own choice of collectives that add up.
func capturedViews(counts map[captured]uint64, ranks int, measured map[state.Bucket]bool, fixed bool) (views []control.CapturedView) {
	n := uint64(max(ranks, 1))
	for k, calls := range counts {
		wanted := fixed && actions.ReductionOrderMatters(k.bucket.Collective)
		views = append(views, control.CapturedView{Bucket: k.bucket, Action: k.action, Calls: (calls + n - 1) / n,
			Supported: wanted || measured[k.bucket] || k.action != actions.Default})
	}
	slices.SortFunc(views, func(a, b control.CapturedView) int {
		return cmp.Or(cmp.Compare(a.Bucket.Collective, b.Bucket.Collective), cmp.Compare(a.Bucket.Log2Bytes, b.Bucket.Log2Bytes),
			cmp.Compare(a.Action.Word(), b.Action.Word()))
	})
	return views
}
