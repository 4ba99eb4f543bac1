package calibrate

import (
	"errors"
	"slices"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/forced"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// Measurements that a choice rests on at least, each apart from the others: one alone may have been disturbed.
const (
	defaultPoints = 3
	choicePoints  = 2
)

// Bounds of what is spent on one bucket, in points.
const (
	mostPoints  = 60
	mostOfOne   = 4 // of one choice: learners go on asking for one that is as good as NCCL's default, and which is better matters little
	defaultEach = 6 // between two of the default: one that was measured at the start alone would hide a drift
)

// bucket is one collective and size of a shape.
type bucket struct {
	state.Bucket
	name   string // of the collective
	bytes  uint64 // nccl-tests' size
	index  int    // in the tuner's session, -1: nothing can be chosen
	marks  uint32 // of NCCL, the same on all ranks
	set    []actions.Action
	points map[actions.Action][]float64 // medians, us
	barred map[actions.Action]error     // why they are not chosen
	unseen []actions.Action             // that ranks did not tell of once
	named  int                          // names that were asked for
	first  []float64                    // what the default's first point gave, until there is a learner
	n      int                          // points
	us     float64                      // of NCCL's default, about; 0: not measured
	memory string                       // that NCCL's default is measured in; "": the ranks' buffers
	err    error                        // why nothing more is measured
	done   bool
	kept   bool // the store has it
}

// buckets lists what is measured of a target, what matters most first.
func buckets(o *Options, t target) (all []*bucket) {
	for _, name := range t.collectives(o) {
		c, err := actions.ParseCollective(name)
		if err != nil {
			continue // Check knows them all
		}
		for size := o.Smallest; size <= t.largest(o); size *= 2 {
			bytes := size
			if share := 16 * uint64(t.Ranks); forced.Shared(name) { // NCCL's share is whole: the size must not fall into the bucket below
				bytes = (size + share - 1) / share * share
			}
			if b, ok := state.BucketOf(c, bytes); ok && (len(all) == 0 || all[len(all)-1].Bucket != b) { // the least shares of many ranks are of one
				all = append(all, &bucket{Bucket: b, name: name, bytes: bytes, index: -1,
					points: map[actions.Action][]float64{}, barred: map[actions.Action]error{}})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *bucket) int { return later(a) - later(b) })
	return all
}

// Sizes up to here are what a model's layers send, and what a choice changes most.
const midBytes = 4 << 20

// later orders buckets: first what tensor-parallel and data-parallel programs call, at sizes at which latency counts.
func later(b *bucket) (rank int) {
	if b.name == "Broadcast" || b.name == "Reduce" {
		rank++
	}
	if b.bytes > midBytes {
		rank += 2
	}
	return rank
}

// idle says of a bucket that was measured that it is AllToAll's and the ranks have no kernels of ours for it. Large sizes have
// those in bulk alone.
func (b *bucket) idle() bool {
	for k := range actions.Kernel(actions.NumKernels) {
		if tuner.MarkSet(b.marks).Has(actions.Action{Path: actions.PathLSA, Kernel: k}) {
			return false
		}
	}
	return b.Collective.Plain() == actions.AllToAll && tuner.MarkSet(b.marks)&(tuner.MarkGDAKI|tuner.MarkProxy) == 0
}

// confirmed says that a choice rests on enough.
func (b *bucket) confirmed(a actions.Action) bool {
	return len(b.points[actions.Default]) >= defaultPoints && (a == actions.Default || b.barred[a] == nil && len(b.points[a]) >= choicePoints)
}

// untold drops the last point of a choice of which ranks did not tell that it ran: a busy machine's threads may be late. Not a second time.
func (b *bucket) untold(a actions.Action, why error) bool {
	fault := new(forced.Fault)
	if !errors.As(why, &fault) || fault.Outcome != forced.Unseen || slices.Contains(b.unseen, a) {
		return false
	}
	b.unseen = append(b.unseen, a)
	b.points[a] = b.points[a][:len(b.points[a])-1]
	return true
}

// missing gives what a choice wants to be measured next before it is confirmed.
func (b *bucket) missing(a actions.Action) actions.Action {
	if len(b.points[actions.Default]) < defaultPoints {
		return actions.Default
	}
	return a
}

// spread is the largest of the default's points over the smallest.
func (b *bucket) spread() float64 {
	all := b.points[actions.Default]
	if len(all) < 2 {
		return 1
	}
	return slices.Max(all) / slices.Min(all)
}
