package agents

import (
	"cmp"
	"slices"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// descent is coordinate descent as AutoCCL does it (Xu et al., NSDI 2025): the action set is split into subspaces by
// algorithm and protocol, inside each the channels are searched as a unimodal function, online, while the job runs.
// All subspaces advance in the same batch, and one that has fallen behind is given up.
//
// What to do next follows from what is measured, so a trial that is never seen is simply proposed again.
type descent struct {
	known
	lines     []line
	bandwidth bool // calls of this size are bound by bandwidth: few channels are ruinous, so search starts at the most
}

func newDescent(t Task) Learner {
	return &descent{known: newKnown(t), lines: splitLines(t.Set), bandwidth: bandwidthBound(t.Bucket.Log2Bytes) >= 0.5}
}

// splitLines groups the set by kind, in the order of first appearance.
func splitLines(set []actions.Action) []line {
	var lines []line
	for i := 1; i < len(set); i++ {
		same := func(l line) bool { return set[l.arms[0]].Kind() == set[i].Kind() }
		at := slices.IndexFunc(lines, same)
		if at < 0 {
			at = len(lines)
			lines = append(lines, line{})
		}
		lines[at].arms = append(lines[at].arms, i)
	}
	for _, l := range lines {
		slices.SortStableFunc(l.arms, func(i, j int) int { return cmp.Compare(set[i].Channels, set[j].Channels) })
	}
	return lines
}

func (d *descent) Name() string                { return NameCoordinateDescent }
func (d *descent) Observe(o state.Observation) { d.arms.add(&o) }
func (d *descent) Shift(Diagnosis)             { d.shift() }

// Confirming a choice: samples of the best action, and of those that may be as good.
const (
	confirmBest   = 6
	confirmNear   = 3
	confirmTrials = 5    // a batch
	nearBest      = 0.06 // log cost
	confirmShare  = 4    // confirming comes before searching while it takes less than one call in so many
)

// Propose gives a batch in which confirming comes first. One call at a time, the order of a batch is the order of the
// calls: there searching comes first where enough was confirmed, or it would be held up for half of 64 calls.
func (d *descent) Propose(maxTrials int) (actions.Action, []actions.Action) {
	single := d.room(maxTrials) == 1
	first := defaultFirst
	if single {
		first = modelDefaults // more calls of the default come when they are needed
	}
	if opening := d.openingOf(maxTrials, first); opening != nil {
		return d.set[d.base], opening
	}
	d.choose()
	best := d.arms.samples[0].log()
	for i := range d.set {
		if d.arms.samples[i].n > 0 {
			best = min(best, d.arms.samples[i].log())
		}
	}
	d.rank()
	d.trials = d.trials[:0]
	early := !single || d.repeats()*confirmShare < d.arms.calls
	if early {
		d.confirm(best)
	}
	drift := d.memory.drift(d.arms)
	for i := range d.lines {
		if l := &d.lines[i]; !l.behind(best, drift) {
			for _, at := range l.next(d) {
				d.trials = append(d.trials, d.set[l.arms[at]])
			}
		}
	}
	if !early {
		d.confirm(best)
	}
	if b := d.cheapest(); len(d.trials) == 0 && d.pursue(b) {
		d.trials = append(d.trials, d.set[b])
	}
	d.trials = d.trials[:min(len(d.trials), max(0, maxTrials))]
	return d.set[d.base], d.trials
}

// confirm proposes what looks better than the default again: the best twice, others that may be as good once. There are
// few of these a batch, so that confirming does not crowd out searching.
func (d *descent) confirm(best float64) {
	room := len(d.trials) + confirmTrials
	base := d.arms.samples[0].log()
	for i := 1; i < len(d.set) && len(d.trials) < room; i++ {
		s := &d.arms.samples[i]
		if s.n == 0 || s.log() >= base {
			continue
		}
		behind := s.log() - best
		if behind == 0 && s.n < confirmBest {
			d.trials = append(d.trials, d.set[i], d.set[i])
		} else if behind < nearBest && s.n < confirmNear {
			d.trials = append(d.trials, d.set[i])
		}
	}
}

// rank puts the lines in the order of their best costs, remembered ones where nothing is measured yet.
func (d *descent) rank() {
	r := d.memory.likely(d.arms)
	base := d.arms.samples[0].log()
	for i := range d.lines {
		d.lines[i].survey(d, r, base)
	}
	slices.SortStableFunc(d.lines, func(a, b line) int { return cmp.Compare(a.cost, b.cost) })
}

// cheapest is the action of the least cost that was measured twice.
func (d *descent) cheapest() int {
	b := 0
	for i := range d.set {
		if d.arms.samples[i].n > 1 && d.arms.samples[i].log() < d.arms.samples[b].log() {
			b = i
		}
	}
	return b
}

// repeats is how many calls were spent on measuring again.
func (d *descent) repeats() int {
	sum := 0
	for i := 1; i < len(d.set); i++ {
		sum += max(0, d.arms.samples[i].n-1)
	}
	return sum
}
