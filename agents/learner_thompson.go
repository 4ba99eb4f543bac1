package agents

import (
	"math"
	"math/rand/v2"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// thompson tries each action with the probability that it is the best (Thompson 1933): it draws the costs of all actions
// together from the model, with all that they have in common, and takes the cheapest. A batch is several draws. It stops
// when hardly anything may be better than the best by a margin that matters.
type thompson struct {
	belief
	rng    *rand.Rand
	root   []float64 // [n,n] row-major, lower triangle: Cholesky factor of the model's covariance
	normal []float64 // [n] scratch
}

// Draws are narrower than the posterior: plain ones explore for longer than a few dozen calls pay for. Tempers of 0.3,
// 0.5, 0.6, 0.7, 0.8, 0.85 and 1 were tried on the recorded tables, 4 to 8 seeds, 5% and 15% noise: 0.6 and 0.7 cost the
// least over 64 calls (1 costs 0.005 to 0.009 of the oracle's more, 0.3 costs 0.03 more). The doubt did not matter
// between 0.03 and 0.3.
const (
	thompsonTemper = 0.7  // of standard deviations
	thompsonWorth  = 0.03 // gain, in log cost, that matters
	thompsonDoubt  = 0.10 // greatest probability of such a gain at which it stops, summed over actions
	thompsonMost   = 12   // draws: a batch
)

func newThompson(t Task) Learner {
	n := len(t.Set)
	return &thompson{belief: newBelief(t), rng: t.Rand, root: make([]float64, n*n), normal: make([]float64, n)}
}

func (s *thompson) Name() string                { return NameThompson }
func (s *thompson) Observe(o state.Observation) { s.arms.add(&o) }
func (s *thompson) Shift(Diagnosis)             { s.shift() }

func (s *thompson) Propose(maxTrials int) (actions.Action, []actions.Action) {
	if opening := s.openingOf(maxTrials, modelDefaults); opening != nil {
		return s.set[s.base], opening
	}
	s.choose()
	s.refresh(s.arms.sigma())
	best := s.least()
	trials := s.begin()
	if s.hopeful(best) {
		s.factor()
		for range min(maxTrials, thompsonMost) {
			if i := s.draw(); s.mayRepeat(i) {
				trials = s.include(trials, i)
			}
		}
	}
	return s.settle(trials, best, maxTrials)
}

// hopeful reports whether something may still be better than the best by a margin that matters. The probability is
// bounded by the sum over actions.
func (s *thompson) hopeful(best int) bool {
	sum := 0.0
	for i := range s.set {
		if mean, sd := s.model.behind(i, best); i != best && sd > 0 {
			sum += 0.5 * math.Erfc((mean+thompsonWorth)/(sd*math.Sqrt2))
		}
	}
	return sum > thompsonDoubt
}

// leastPivot keeps the factor finite where the covariance is singular but for rounding: a standard deviation of 3e-5 is
// nothing in a log cost.
const leastPivot = 1e-9

// factor computes root.
func (s *thompson) factor() {
	n, cov := s.model.n, s.model.cov
	for i := range n {
		row := s.root[i*n : i*n+i+1]
		for j := range i + 1 {
			other := s.root[j*n : j*n+j+1]
			c := cov[i*n+j]
			for k, x := range other[:j] {
				c -= x * row[k]
			}
			if i == j {
				row[i] = math.Sqrt(max(c, leastPivot))
			} else {
				row[j] = c / other[j]
			}
		}
	}
}

// draw gives the cheapest action of one joint sample.
func (s *thompson) draw() int {
	pick, least := 0, math.Inf(1)
	for i, mean := range s.model.mean {
		s.normal[i] = s.rng.NormFloat64()
		deviation := 0.0
		for k, r := range s.root[i*s.model.n : i*s.model.n+i+1] {
			deviation += r * s.normal[k]
		}
		if x := mean + thompsonTemper*deviation; x < least {
			pick, least = i, x
		}
	}
	return pick
}
