package agents

import (
	"cmp"
	"math"
	"slices"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// halving is sequential halving (Karnin, Koren and Somekh 2013; as successive halving Jamieson and Talwalkar 2016): a
// field of actions is tried once each, the better half goes on to a round of twice the samples, until one is left; then
// the winner meets the next field (Hyperband's brackets, Li et al. 2017). The model prunes: only what may still beat the
// best is let into a field, the most promising first. It judges too, so that one delayed call does not end the best.
//
// What to try follows from what is measured, so a trial that is never seen is proposed again; but a round that lasts too
// long is ended, since some of its trials may not be allowed.
type halving struct {
	belief
	field []int // still in the race
	need  int   // samples of each that end the round
	races int   // begun in this condition
	era   int   // arms.shifts when they began
	began int   // arms.calls when the round began
}

// A field fills a batch. Asked for one call at a time, fields are small: of 2, 3, 4, 6, 8 and 12 on the recorded tables
// (4 seeds, 5% and 15% noise) 4 found the best choices by call 32; 6 and more cost 0.02 of the oracle's cost over 64 calls
// and more, 2 is no halving.
const (
	halvingField    = 4
	halvingMost     = 12
	halvingWidth    = 1.5  // standard deviations of the bound by which actions are let in
	halvingWorth    = 0.03 // possible gain, in log cost, below which they are not
	halvingRaces    = 8    // a condition: by then all that may win has run
	halvingPatience = 2    // a round ends after so many times the calls that it needs
	halvingSlack    = 4    // and so many
)

func newHalving(t Task) Learner {
	return &halving{belief: newBelief(t), field: make([]int, 0, len(t.Set))}
}

func (h *halving) Name() string                { return NameSuccessiveHalving }
func (h *halving) Observe(o state.Observation) { h.arms.add(&o) }

// Shift starts the races anew. The winners of earlier conditions open them, and what was remembered orders the fields.
func (h *halving) Shift(Diagnosis) { h.shift() }

func (h *halving) Propose(maxTrials int) (actions.Action, []actions.Action) {
	if opening := h.openingOf(maxTrials, modelDefaults); opening != nil {
		return h.set[h.base], opening
	}
	h.choose()
	h.refresh(h.arms.sigma())
	room := h.room(maxTrials)
	size := min(max(room, halvingField), halvingMost)
	best := h.least()
	if h.races == 0 || h.era != h.arms.shifts {
		h.races, h.era = 0, h.arms.shifts
		h.enter(best, size)
	}
	trials := h.begin()
	for len(h.field) > 1 {
		if !h.late() {
			trials = h.round(trials)
		}
		if len(trials) > 0 {
			trials = h.scout(trials, best, room)
			break
		}
		if h.halve(); len(h.field) == 1 && h.races < halvingRaces {
			h.enter(best, size)
		}
	}
	trials = trials[:min(len(trials), max(0, maxTrials))]
	if len(h.field) > 1 {
		h.trials = trials
		return h.set[h.base], trials
	}
	return h.settle(trials, best, maxTrials)
}

// enter begins a race of the best so far and of what may be better, the most promising of it.
func (h *halving) enter(best, size int) {
	h.field = h.field[:0]
	for i := range h.set {
		if i != best && h.bound(i, best) < -halvingWorth {
			h.field = append(h.field, i)
		}
	}
	slices.SortFunc(h.field, func(i, j int) int { return cmp.Or(cmp.Compare(h.bound(i, best), h.bound(j, best)), cmp.Compare(i, j)) })
	h.field = append(h.field[:min(len(h.field), size-1)], best)
	h.need, h.began = 1, h.arms.calls
	h.races++
}

// bound is the least that an action may cost over the best.
func (h *halving) bound(i, best int) float64 {
	mean, sd := h.model.behind(i, best)
	return mean - halvingWidth*sd
}

// late reports that the round has had its calls, seen or not.
func (h *halving) late() bool {
	return h.arms.calls-h.began > halvingPatience*len(h.field)*h.need+halvingSlack
}

// round proposes what the round lacks, every action once before any twice.
func (h *halving) round(trials []actions.Action) []actions.Action {
	for n := range h.need {
		for _, i := range h.field {
			if h.arms.samples[i].n <= n && h.mayRepeat(i) {
				trials = h.include(trials, i)
			}
		}
	}
	return trials
}

// scout fills what a round leaves of a batch with the most promising of those that are not in the race.
func (h *halving) scout(trials []actions.Action, best, room int) []actions.Action {
	for len(trials) < room {
		pick, lowest := -1, -halvingWorth
		for i := range h.set {
			if h.times[i] > 0 || h.arms.samples[i].n > 0 || slices.Contains(h.field, i) {
				continue
			}
			if low := h.bound(i, best); low < lowest {
				pick, lowest = i, low
			}
		}
		if pick < 0 {
			break
		}
		trials = h.include(trials, pick)
	}
	return trials
}

// halve ends a round: the better half goes on.
func (h *halving) halve() {
	slices.SortFunc(h.field, func(i, j int) int { return cmp.Or(cmp.Compare(h.judge(i), h.judge(j)), cmp.Compare(i, j)) })
	h.field = h.field[:(len(h.field)+1)/2]
	h.need *= 2
	h.began = h.arms.calls
}

// judge is an action's expected log cost; what was never measured cannot win.
func (h *halving) judge(i int) float64 {
	if h.arms.samples[i].n == 0 {
		return math.Inf(1)
	}
	return h.model.mean[i]
}
