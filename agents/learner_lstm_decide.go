package agents

import (
	"math"

	"dynamiccl/actions"
)

// Propose tries, call by call, the action that is worth most: what it is expected to cost now against what knowing more
// about it is worth over the horizon (the knowledge gradient of Frazier, Powell and Dayanik 2008).
func (l *lstm) Propose(maxTrials int) (actions.Action, []actions.Action) {
	l.trials = l.trials[:0]
	if l.arms.samples[0].n == 0 {
		if opening := l.opening(maxTrials); opening != nil && l.oldDefault != 0 {
			return l.set[l.base], opening
		}
		if maxTrials > 0 {
			l.trials = append(l.trials, l.set[0])
		}
		return l.set[l.base], l.trials
	}
	l.think()
	sigma := l.arms.sigma()
	l.settle(sigma)
	for len(l.trials) < maxTrials {
		pick := l.decide(sigma)
		if l.owesDefault(pick) {
			pick = 0
		}
		if pick == l.base && l.proven(pick, sigma) {
			break
		}
		if pick == 0 && l.base == 0 && l.arms.samples[0].n >= defaultFirst {
			break
		}
		l.trials = append(l.trials, l.set[pick])
		if pick > 0 { // as if it came back as expected
			l.variance[pick] = 1 / (1/l.variance[pick] + 1/(sigma*sigma))
		}
	}
	if len(l.trials) > 0 {
		l.thought = false
	}
	return l.set[l.base], l.trials
}

// How many calls of the default comparisons rest on. One delayed call of it makes everything else look cheap, and nothing
// but another call of it can show that.
const (
	callsADefault  = 3 // while it is measured less than the guard wants
	trialsADefault = 4 // while the action that is tried is not proven
)

// owesDefault reports that the default must run before pick does again.
func (l *lstm) owesDefault(pick int) bool {
	if pick == 0 {
		return false
	}
	n0, picked := l.arms.samples[0].n, l.arms.samples[pick].n
	calls := l.arms.calls
	for _, a := range l.trials {
		calls++
		switch l.arms.index[a] {
		case 0:
			n0++
		case pick:
			picked++
		}
	}
	return n0 < guardMinDefault && calls >= callsADefault*n0 || picked > trialsADefault*n0
}

// settle chooses the base: the least expected cost, half a standard deviation added, of what is measured.
func (l *lstm) settle(sigma float64) {
	best, least := 0, 0.0
	for i := 1; i < len(l.set); i++ {
		if l.arms.samples[i].n < baseMinSamples {
			continue
		}
		if b := l.mean[i] + math.Sqrt(l.variance[i])/2; b < least {
			best, least = i, b
		}
	}
	l.base = best
}

// proven reports that the guard will have let the base through: then it runs without being a trial.
func (l *lstm) proven(i int, sigma float64) bool {
	if i == 0 {
		return l.arms.samples[0].n >= guardMinDefault
	}
	cfg := DefaultGuardConfig()
	if l.arms.samples[0].n < guardMinDefault || l.arms.samples[i].n < guardMinChoice {
		return false
	}
	se := math.Sqrt(l.arms.variance(0, sigma) + l.arms.variance(i, sigma))
	return l.arms.samples[0].log()-l.arms.samples[i].log()-cfg.Confidence*se > cfg.Margin
}

// decide gives the action of greatest worth. 0 is the default.
func (l *lstm) decide(sigma float64) int {
	best, second := 0, -1
	for i := 1; i < len(l.set); i++ {
		switch {
		case l.mean[i] < l.mean[best]:
			best, second = i, best
		case second < 0 || l.mean[i] < l.mean[second]:
			second = i
		}
	}
	pick, most := 0, math.Inf(-1)
	noise := sigma * sigma
	n0 := float64(min(l.arms.samples[0].n, window))
	for i := range l.set {
		change := l.variance[i] / math.Sqrt(l.variance[i]+noise) // standard deviation of the next estimate
		if i == 0 {
			change = sigma * math.Sqrt(1/n0-1/(n0+1))
		}
		gap := l.mean[i] - l.mean[best]
		if i == best && second >= 0 {
			gap = l.mean[second] - l.mean[best]
		}
		worth := l.opt.Horizon*expectedGain(gap, change) - math.Expm1(min(8, l.mean[i]-l.mean[best]))
		if worth > most {
			pick, most = i, worth
		}
	}
	return pick
}

// expectedGain is E[max(0, X)] for X normal with mean -gap and the given standard deviation.
func expectedGain(gap, sd float64) float64 {
	if sd <= 0 {
		return 0
	}
	z := gap / sd
	if z > 6 {
		return 0
	}
	density := math.Exp(-z*z/2) / math.Sqrt(2*math.Pi)
	return sd * (density - z*math.Erfc(z/math.Sqrt2)/2)
}
