package tunersim

import (
	"errors"
	"fmt"
	"slices"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

// ErrBadComparison is returned for a comparison that cannot be played.
var ErrBadComparison = errors.New("bad comparison")

// Trace is a table and the name that results give it.
type Trace struct {
	Name  string
	Table *Table
}

// Scenario is what learners are compared on: all buckets of a machine at once, in one condition after the other. Every
// condition has the same buckets and action sets; only the last one counts for the results.
type Scenario struct {
	Trace      string // of the last condition
	Condition  string // "quiet", or "quiet->network-load"
	Topology   state.Topology
	conditions int
	buckets    []scene
}

// scene is one bucket of a scenario.
type scene struct {
	state.Bucket
	bytes  uint64
	set    []actions.Action
	costNs [][]float64 // [condition][action], without noise
	counts [][]float64 // likewise: counter latency; of a table that knows one time only, the default split of it
	best   []int       // [condition] cheapest action of the set, the earliest of equals
}

// Buckets is how many buckets a scenario has.
func (s *Scenario) Buckets() int { return len(s.buckets) }

// Scenarios makes one scenario of every trace and, for traces of one machine, NCCL version and shape, one of every
// ordered pair of two conditions: there the buckets are those that both measured, the action sets what both measured.
// symmetric adds NCCL's symmetric kernels to the sets, which no tuner plugin can choose.
func Scenarios(traces []Trace, symmetric bool) ([]*Scenario, error) {
	var all []*Scenario
	seen := map[string]bool{}
	add := func(s *Scenario, from string) error {
		key := s.Trace + "\x00" + s.Condition
		if seen[key] && from != s.Trace { // two tables of the first condition
			s.Trace = from + "->" + s.Trace
			key = s.Trace + "\x00" + s.Condition
		}
		if seen[key] {
			return fmt.Errorf("two traces are called %q: %w", s.Trace, ErrBadComparison)
		}
		seen[key] = true
		all = append(all, s)
		return nil
	}
	for _, t := range traces {
		if err := add(newScenario(t.Name, t.Table.Condition, symmetric, t.Table), t.Name); err != nil {
			return nil, err
		}
	}
	for _, from := range traces {
		for _, to := range traces {
			if from.Table.Condition == to.Table.Condition || !SameMachine(from.Table, to.Table) {
				continue
			}
			s := newScenario(to.Name, from.Table.Condition+"->"+to.Table.Condition, symmetric, from.Table, to.Table)
			if len(s.buckets) == 0 {
				continue
			}
			if err := add(s, from.Name); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// SameMachine reports whether two tables differ in their condition alone.
func SameMachine(a, b *Table) bool {
	return a.Machine == b.Machine && a.NCCL == b.NCCL && a.Shape == b.Shape && a.NICs == b.NICs
}

func newScenario(trace, condition string, symmetric bool, tables ...*Table) *Scenario {
	last := tables[len(tables)-1]
	s := &Scenario{Trace: trace, Condition: condition, Topology: last.Topology(), conditions: len(tables)}
	for _, b := range CommonBuckets(tables) {
		k := scene{Bucket: b, bytes: last.bucket(b).bytes}
		var extra []actions.Action
		if symmetric {
			extra = append(extra, actions.Action{Path: actions.PathSymmetric})
		}
		k.set, k.costNs, k.counts = CommonChoices(tables, b, extra...)
		for _, costs := range k.costNs {
			k.best = append(k.best, slices.Index(costs, slices.Min(costs)))
		}
		s.buckets = append(s.buckets, k)
	}
	return s
}

// CommonChoices are the actions of a bucket, and the extra ones, that all tables measured; what they cost, and their
// counters, both [table][action] in nanoseconds.
func CommonChoices(tables []*Table, b state.Bucket, extra ...actions.Action) (set []actions.Action, costNs, counterNs [][]float64) {
	for _, a := range append(tables[0].Actions(b), extra...) {
		if !slices.ContainsFunc(tables, func(t *Table) bool { _, ok := t.Cost(b, a); return !ok }) {
			set = append(set, a)
		}
	}
	for _, t := range tables {
		costs, counters := make([]float64, len(set)), make([]float64, len(set))
		for i, a := range set {
			costs[i], _ = t.Cost(b, a)
			counters[i], _ = t.Counter(b, a)
		}
		costNs, counterNs = append(costNs, costs), append(counterNs, counters)
	}
	return set, costNs, counterNs
}

// Names of the learners that know the table.
const (
	LearnerOracle  = "oracle"  // the best action of every bucket and condition
	LearnerStatic  = "static"  // the best single action of every collective in hindsight
	LearnerDefault = "default" // NCCL's own choice
)

// KnowingLearners lists them: they need no agents.NewLearner.
func KnowingLearners() []string { return []string{LearnerOracle, LearnerStatic, LearnerDefault} }

// Contender is a learner in a comparison. New is nil for KnowingLearners only.
type Contender struct {
	Name  string
	New   agents.NewLearner
	Batch int // trials that it proposes at once; 0: 1. A daemon's batches are its own
}

// fixed gives the action of every bucket in every condition of a learner that knows the table: [condition][bucket].
func (s *Scenario) fixed(name string) ([][]int, error) {
	choices := make([][]int, s.conditions)
	for c := range choices {
		choices[c] = make([]int, len(s.buckets))
		switch name {
		case LearnerDefault:
		case LearnerOracle:
			for i := range s.buckets {
				choices[c][i] = s.buckets[i].best[c]
			}
		case LearnerStatic: // the best of the condition that counts, also before it
			s.static(choices[c])
		default:
			return nil, fmt.Errorf("learner %q cannot be made: %w", name, ErrBadComparison)
		}
	}
	return choices, nil
}

// static finds for every collective the action of least mean cost over the default's in the last condition. Where a size
// did not measure an action, NCCL's default runs.
func (s *Scenario) static(choice []int) {
	last := s.conditions - 1
	for collective := range actions.Collective(actions.NumCollectives) {
		var candidates []actions.Action
		for _, k := range s.buckets {
			for _, a := range k.set {
				if k.Collective == collective && !slices.Contains(candidates, a) {
					candidates = append(candidates, a)
				}
			}
		}
		best, least := actions.Default, 0.0
		for _, a := range candidates {
			sum := 0.0
			for _, k := range s.buckets {
				if k.Collective == collective {
					sum += k.costNs[last][max(0, slices.Index(k.set, a))] / k.costNs[last][0]
				}
			}
			if a == actions.Default || sum < least { // the default comes first in every set
				best, least = a, sum
			}
		}
		for i, k := range s.buckets {
			if k.Collective == collective {
				choice[i] = max(0, slices.Index(k.set, best))
			}
		}
	}
}
