package agents

import (
	"math/rand/v2"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// ucb is a bandit on log cost: it tries the actions whose lower confidence bound (the upper one of their reward) is
// below the best cost known. Bounds come from costModel, so neighbours of bad actions are bad before they are tried.
// A batch is chosen one action after the other, each time as if the earlier ones had come back as expected (GP-BUCB,
// Desautels et al. 2014).
type ucb struct {
	known
	model *costModel
	rng   *rand.Rand
}

const (
	ucbWidth  = 1.5  // standard deviations of the confidence bound
	ucbWorth  = 0.03 // possible gain, in log cost, that is worth a trial
	ucbJitter = 1e-6 // breaks ties between actions that nothing tells apart
)

func newUCB(t Task) Learner {
	return &ucb{known: newKnown(t), model: newCostModel(t.Set, t.Bucket), rng: t.Rand}
}

func (u *ucb) Name() string                { return NameUCB }
func (u *ucb) Observe(o state.Observation) { u.arms.add(&o) }
func (u *ucb) Shift(Diagnosis)             { u.shift() }

func (u *ucb) Propose(maxTrials int) (actions.Action, []actions.Action) {
	if opening := u.opening(maxTrials); opening != nil {
		return u.set[u.base], opening
	}
	u.choose()
	u.model.refresh(u.arms, &u.memory)
	sigma := u.arms.sigma()
	best := 0.0
	for i := range u.arms.samples {
		if mean, _ := u.model.predict(i); u.arms.samples[i].n > 0 {
			best = min(best, mean)
		}
	}
	trials := u.trials[:0]
	for len(trials) < maxTrials {
		pick, lowest := 0, best-ucbWorth
		for i := 1; i < len(u.set); i++ {
			mean, sd := u.model.predict(i)
			if low := mean - ucbWidth*sd - ucbJitter*u.rng.Float64(); low < lowest {
				pick, lowest = i, low
			}
		}
		if pick == 0 {
			break
		}
		u.model.pretend(pick, sigma*sigma)
		trials = append(trials, u.set[pick])
	}
	u.trials = trials
	return u.set[u.base], trials
}
