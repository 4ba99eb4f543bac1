package tunersim

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

// Timing is how late plans take force and results come back.
type Timing struct {
	EpochCalls  int // calls of the bucket an epoch; the other calls of a communicator's epoch are of other buckets
	MinLag      int // epochs until an epoch's results are seen; 1: at its own end
	MaxLag      int
	MaxTrials   int // that a plan entry carries
	MinDetect   int // calls that the detector must see until it says that conditions changed
	MaxDetect   int
	DetectBound float64 // log step of the cost of the base below which the detector says nothing
}

// DefaultTiming is a communicator that alternates between four buckets: 16 calls an epoch, four of them of this one.
func DefaultTiming() Timing {
	return Timing{EpochCalls: 4, MinLag: 1, MaxLag: 2, MaxTrials: 12, MinDetect: 5, MaxDetect: 10, DetectBound: 0.08}
}

// Run is one learner on one bucket.
type Run struct {
	Learner string
	Bucket  state.Bucket
	Phases  []Phase
	Noise   Noise
	Timing  Timing
	Guard   agents.GuardConfig
	Seed    uint64
}

// PhaseResult is what one phase cost, by the tables (without noise).
type PhaseResult struct {
	Condition   string
	Calls       int
	TotalNs     float64
	DefaultNs   float64 // of the same calls under NCCL's default
	BestNs      float64 // under the best action
	Base        actions.Action
	CallsWithin int     // calls until the base in force was, and stayed until call 64, within 10% of the best; Calls if never
	At64        float64 // cost of the base in force over the best, after 64 calls
	Trials      int     // calls of neither the base nor the default
}

// within is how close to the best counts as adapted, adaptCalls when it must be so.
const (
	within     = 1.10
	adaptCalls = 64
)

// Do runs it. Every call, plan and sample is a function of the run's fields.
func (r Run) Do() ([]PhaseResult, error) {
	rng := rand.New(rand.NewPCG(r.Seed, 0x9e3779b97f4a7c15))
	newLearner, err := agents.New(r.Learner)
	if err != nil {
		return nil, err
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	set := r.Phases[0].Table.Actions(r.Bucket)
	task := agents.Task{Set: set, Bucket: r.Bucket, Topology: r.Phases[0].Table.Topology(), Rand: rand.New(rand.NewPCG(r.Seed, 1))}
	guard := agents.NewGuard(newLearner(task), set, r.Bucket, nil, r.Guard)
	d := driver{Run: r, rng: rng, guard: guard, env: NewEnvironment(r.Phases, r.Bucket, r.Noise, rng), results: make([]PhaseResult, len(r.Phases))}
	d.run()
	for i := range d.results {
		if d.results[i].CallsWithin < 0 {
			d.results[i].CallsWithin = d.results[i].Calls
		}
	}
	return d.results, nil
}

// ErrBadRun is returned for a run that cannot be done.
var ErrBadRun = errors.New("bad run")

func (r Run) check() error {
	t := r.Timing
	switch {
	case len(r.Phases) == 0:
		return fmt.Errorf("no phases: %w", ErrBadRun)
	case t.EpochCalls <= 0 || t.MinLag < 1 || t.MaxLag < t.MinLag:
		return fmt.Errorf("epochs of %d calls, results after %d to %d epochs: all must be 1 or more: %w", t.EpochCalls, t.MinLag, t.MaxLag, ErrBadRun)
	case t.MinDetect < 1 || t.MaxDetect < t.MinDetect:
		return fmt.Errorf("detection after %d to %d calls: must be 1 or more: %w", t.MinDetect, t.MaxDetect, ErrBadRun)
	}
	for i, p := range r.Phases {
		if p.Table == nil || p.Calls <= 0 {
			return fmt.Errorf("phase %d has no table or no calls: %w", i, ErrBadRun)
		}
		if _, ok := p.Table.Default(r.Bucket); !ok {
			return fmt.Errorf("phase %d: %s was not measured: %w", i, r.Bucket, ErrBadRun)
		}
	}
	return nil
}

// add counts a call that cost costNs while the base in force cost baseNs.
func (r *PhaseResult) add(t *Table, b state.Bucket, base actions.Action, costNs float64, trial bool) {
	def, _ := t.Default(b)
	_, best, _ := t.Best(b)
	baseNs, ok := t.Cost(b, base)
	if !ok {
		baseNs = def
	}
	if r.Calls == 0 {
		r.Condition, r.CallsWithin = t.Condition, -1
	}
	near := baseNs <= within*best
	switch {
	case !near && (r.Calls < adaptCalls || r.CallsWithin < 0):
		r.CallsWithin = -1
	case near && r.CallsWithin < 0:
		r.CallsWithin = r.Calls
	}
	if r.Calls < adaptCalls {
		r.At64 = baseNs / best
	}
	r.Calls++
	r.TotalNs += costNs
	r.DefaultNs += def
	r.BestNs += best
	r.Base = base
	if trial {
		r.Trials++
	}
}
