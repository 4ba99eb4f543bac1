package agents

import (
	"math/rand/v2"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// ucb is a bandit on log cost: it tries the actions whose lower confidence bound (the upper one of their reward) is
// below the best cost known. Bounds are of the difference to the best and come from the model, so neighbours of bad
// actions are bad before they are tried, and so are actions that were bad in neighbouring buckets. A batch is chosen one
// action after the other, each time as if the earlier ones had come back as expected (GP-BUCB, Desautels et al. 2014).
type ucb struct {
	belief
	rng *rand.Rand
}

// The width and what is worth a trial were searched over {1, 1.25, 1.5, 1.75, 2} and {0.01, 0.02, 0.03, 0.05, 0.06} on
// the recorded tables, 6 to 8 seeds, 5% and 15% noise: widths of 1.25 to 1.75 and any worth cost the same within 0.004 of
// the oracle's over 64 calls.
const (
	ucbWidth  = 1.5  // standard deviations of the confidence bound
	ucbWorth  = 0.03 // possible gain, in log cost, that is worth a trial
	ucbJitter = 1e-6 // breaks ties between actions that nothing tells apart
	ucbMost   = 16   // trials of a batch, and a few more in case that a guard turns some down
)

func newUCB(t Task) Learner { return &ucb{belief: newBelief(t), rng: t.Rand} }

func (u *ucb) Name() string                { return NameUCB }
func (u *ucb) Observe(o state.Observation) { u.arms.add(&o) }
func (u *ucb) Shift(Diagnosis)             { u.shift() }

func (u *ucb) Propose(maxTrials int) (actions.Action, []actions.Action) {
	if opening := u.openingOf(maxTrials, modelDefaults); opening != nil {
		return u.set[u.base], opening
	}
	u.choose()
	sigma := u.arms.sigma()
	u.refresh(sigma)
	best := u.least()
	trials := u.begin()
	for len(trials) < min(maxTrials, ucbMost) {
		pick, lowest := -1, -ucbWorth
		for i := range u.set {
			if i == best || !u.mayRepeat(i) {
				continue
			}
			mean, sd := u.model.behind(i, best)
			if low := mean - ucbWidth*sd - ucbJitter*u.rng.Float64(); low < lowest {
				pick, lowest = i, low
			}
		}
		if pick < 0 {
			break
		}
		u.model.pretend(pick, sigma*sigma)
		trials = u.include(trials, pick)
	}
	return u.settle(trials, best, maxTrials)
}
