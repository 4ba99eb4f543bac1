package agents

import (
	"math"

	"dynamiccl/actions"
)

// Propose tries, call by call, the action that is worth most: what it is expected to cost now against what knowing more
// about it is worth over the horizon (the knowledge gradient of Frazier, Powell and Dayanik 2008).
func (l *lstm) Propose(maxTrials int) (actions.Action, []actions.Action) {
	l.trials = l.trials[:0]
	l.search.proposed(l.room(maxTrials))
	if l.arms.samples[0].n == 0 {
		if l.oldDefault != 0 {
			first := modelDefaults
			if l.room(maxTrials) > 1 {
				first = defaultFirst
			}
			return l.set[l.base], l.openingOf(maxTrials, first)
		}
		if maxTrials > 0 { // nothing else means anything yet
			l.trials = append(l.trials, l.set[0])
		}
		return l.set[l.base], l.trials
	}
	if rivals := l.appendRivals(l.trials, l.room(maxTrials)); len(rivals) > 0 {
		l.choose()
		l.trials = rivals
		return l.set[l.base], l.trials
	}
	if l.search.rests() {
		l.choose()
		return l.set[l.base], l.trials
	}
	l.think()
	sigma := l.sigma()
	l.settle(sigma)
	l.appraise(sigma)
	for limit := l.room(maxTrials) + spareTrials; len(l.trials) < min(maxTrials, limit); {
		pick := 0
		if !l.owesDefault(maxTrials) {
			pick = l.decide()
		}
		if pick == l.base && !l.pursue(pick) {
			break
		}
		l.trials = append(l.trials, l.set[pick])
		l.planned[pick]++
		l.times[pick]++
		if pick > 0 { // as if it came back as expected
			l.doubt[pick] = 1 / (1/l.doubt[pick] + 1/(sigma*sigma))
			l.worth[pick] = l.worthOf(pick, sigma)
		}
	}
	if len(l.trials) > 0 {
		l.thought = false
	}
	return l.set[l.base], l.trials
}

// spareTrials are proposed in case that a guard turns some down.
const spareTrials = 4

// How often the default is measured while other actions are tried. One delayed call of it makes everything else look
// cheap, and nothing but another call of it can show that; but it may cost twice the best. In batches the guard must be
// able to judge what a batch found, or the calls after it run the default.
const (
	callsADefault  = 3  // in batches, until the guard has what it wants
	firstDefaultAt = 8  // one by one: the second call of the default,
	nextDefaultAt  = 96 // the third, when a guard would begin its rechecks; what runs as a trial until then is within its budget
)

// owesDefault reports that the default must run before anything else does.
func (l *lstm) owesDefault(maxTrials int) bool {
	n0 := l.arms.samples[0].n + l.planned[0]
	calls := l.arms.calls + len(l.trials)
	switch {
	case n0 >= guardMinDefault:
		return false
	case l.room(maxTrials) > 1:
		return calls >= callsADefault*n0
	case n0 == 1:
		return calls >= firstDefaultAt
	case l.defaultsDisagree(): // a third says which was delayed
		return true
	}
	return calls >= nextDefaultAt
}

// settle chooses the base: the least expected cost, half a standard deviation added, of what is measured.
func (l *lstm) settle(sigma float64) {
	best, least := 0, 0.0
	for i := 1; i < len(l.set); i++ {
		if l.arms.samples[i].n < baseMinSamples {
			continue
		}
		if b := l.blend[i] + math.Sqrt(l.doubt[i])/2; b < least {
			best, least = i, b
		}
	}
	l.base = best
}

// appraise begins a batch: the worth of every action. Within a batch only that of what was picked changes.
func (l *lstm) appraise(sigma float64) {
	clear(l.planned)
	clear(l.times)
	l.best, l.second = 0, -1
	for i := 1; i < len(l.set); i++ {
		switch {
		case l.blend[i] < l.blend[l.best]:
			l.best, l.second = i, l.best
		case l.second < 0 || l.blend[i] < l.blend[l.second]:
			l.second = i
		}
	}
	for i := range l.set {
		l.worth[i] = l.worthOf(i, sigma)
	}
}

// worthOf is what a trial of i is worth, in calls of the default; to an actor, in log cost.
func (l *lstm) worthOf(i int, sigma float64) float64 {
	if l.opt.Actor.acts() {
		return l.opt.Actor.Optimism*math.Sqrt(l.doubt[i]) - l.blend[i]
	}
	change := l.doubt[i] / math.Sqrt(l.doubt[i]+sigma*sigma) // standard deviation of the next estimate
	if i == 0 {
		n0 := float64(min(l.arms.samples[0].n, window))
		change = sigma * math.Sqrt(1/n0-1/(n0+1))
	}
	gap := l.blend[i] - l.blend[l.best]
	if i == l.best && l.second >= 0 {
		gap = l.blend[l.second] - l.blend[l.best]
	}
	return l.opt.Horizon*expectedGain(gap, change) - math.Expm1(min(8, l.blend[i]-l.blend[l.best]+l.doubt[i]/2))
}

// decide gives the action of greatest worth. 0 is the default.
func (l *lstm) decide() int {
	if l.opt.Actor.Temperature > 0 {
		return l.draw()
	}
	pick, most := 0, math.Inf(-1)
	for i, w := range l.worth {
		if w > most && l.mayRepeat(i) {
			pick, most = i, w
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
