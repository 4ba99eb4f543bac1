package ranklog

import (
	"cmp"
	"slices"

	"dynamiccl/actions"
)

// A bucket is adapted from the first call on that costs at most 1 + tolerance times the best, if that also holds for a
// share of stayShare of the next stayCalls calls and of all later calls of the phase: the default is measured again on a
// schedule, which is no relapse, and one lucky trial is no adaptation.
const (
	tolerance = 0.10
	stayShare = 0.90
	stayCalls = 10
)

// Sums are costs in nanoseconds, of the recorded table.
type Sums struct {
	Calls, Chosen             uint64
	CostNs, DefaultNs, BestNs float64
}

func (s *Sums) add(o Sums) {
	s.Calls += o.Calls
	s.Chosen += o.Chosen
	s.CostNs += o.CostNs
	s.DefaultNs += o.DefaultNs
	s.BestNs += o.BestNs
}

// OverDefault is what was paid for each unit that NCCL's default would have cost.
func (s Sums) OverDefault() float64 { return s.CostNs / s.DefaultNs }

// OverBest is what was paid for each unit that the best choices would have cost.
func (s Sums) OverBest() float64 { return s.CostNs / s.BestNs }

// Bucket is one collective and size of one communicator in one phase.
type Bucket struct {
	Comm       int
	Collective actions.Collective
	Bytes      uint64
	Sums
	// AdaptedAfter is how many calls of the bucket passed until its cost stayed within 10% of the best; -1: never.
	AdaptedAfter int
}

// Phase is one table of a run.
type Phase struct {
	Index int
	Sums
	Buckets []Bucket // by communicator, collective and size
}

// MedianAdapted is the median over buckets of AdaptedAfter, counting never as later than anything; false: the median
// bucket never adapted.
func (p Phase) MedianAdapted() (calls int, ok bool) {
	var known []int
	for _, b := range p.Buckets {
		if b.AdaptedAfter >= 0 {
			known = append(known, b.AdaptedAfter)
		}
	}
	slices.Sort(known)
	// The upper median: with an even number half of the buckets must not be enough.
	if at := len(p.Buckets) / 2; at < len(known) {
		return known[at], true
	}
	return 0, false
}

type bucketKey struct {
	phase, comm int
	collective  actions.Collective
	bytes       uint64
}

type bucketState struct {
	sums Sums
	good []bool // per call: within tolerance of the best
}

type analysis struct{ buckets map[bucketKey]*bucketState }

func newAnalysis() *analysis { return &analysis{buckets: map[bucketKey]*bucketState{}} }

func (a *analysis) add(r Record) {
	key := bucketKey{r.Phase, r.Comm, r.Collective, r.Bytes}
	b := a.buckets[key]
	if b == nil {
		b = &bucketState{}
		a.buckets[key] = b
	}
	s := Sums{Calls: 1, CostNs: float64(r.CostNs), DefaultNs: float64(r.DefaultNs), BestNs: float64(r.BestNs)}
	if r.Chosen {
		s.Chosen = 1
	}
	b.sums.add(s)
	limit := (1 + tolerance) * s.BestNs
	b.good = append(b.good, s.CostNs <= limit)
}

// adaptedAfter finds that first call; -1: none.
func adaptedAfter(good []bool) int {
	at, all, near := -1, 0, 0 // near: good calls among the stayCalls from i on
	for i := len(good) - 1; i >= 0; i-- {
		if i+stayCalls < len(good) && good[i+stayCalls] {
			near--
		}
		if !good[i] {
			continue
		}
		all++
		near++
		if enough(all, len(good)-i) && enough(near, min(stayCalls, len(good)-i)) {
			at = i
		}
	}
	return at
}

func enough(good, calls int) bool { return float64(good) >= stayShare*float64(calls) }

func (a *analysis) phases() []Phase {
	byPhase := map[int]*Phase{}
	for key, b := range a.buckets {
		p := byPhase[key.phase]
		if p == nil {
			p = &Phase{Index: key.phase}
			byPhase[key.phase] = p
		}
		p.Buckets = append(p.Buckets, Bucket{Comm: key.comm, Collective: key.collective, Bytes: key.bytes, Sums: b.sums, AdaptedAfter: adaptedAfter(b.good)})
	}
	var phases []Phase
	for _, p := range byPhase {
		slices.SortFunc(p.Buckets, func(x, y Bucket) int {
			return cmp.Or(cmp.Compare(x.Comm, y.Comm), cmp.Compare(x.Collective, y.Collective), cmp.Compare(x.Bytes, y.Bytes))
		})
		for _, b := range p.Buckets { // in this order: sums of floats are the same in every run
			p.Sums.add(b.Sums)
		}
		phases = append(phases, *p)
	}
	slices.SortFunc(phases, func(x, y Phase) int { return cmp.Compare(x.Index, y.Index) })
	return phases
}
