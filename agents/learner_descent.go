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

// splitLines groups the set by path, algorithm and protocol, in the order of first appearance.
func splitLines(set []actions.Action) []line {
	var lines []line
	for i := 1; i < len(set); i++ {
		same := func(l line) bool {
			a := set[l.arms[0]]
			return a.Path == set[i].Path && a.Algorithm == set[i].Algorithm && a.Protocol == set[i].Protocol
		}
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
)

func (d *descent) Propose(maxTrials int) (actions.Action, []actions.Action) {
	if opening := d.opening(maxTrials); opening != nil {
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
	d.confirm(best)
	drift := d.memory.drift(d.arms)
	for i := range d.lines {
		if l := &d.lines[i]; !l.behind(best, drift) {
			for _, at := range l.next(d) {
				d.trials = append(d.trials, d.set[l.arms[at]])
			}
		}
	}
	d.trials = d.trials[:min(len(d.trials), max(0, maxTrials))]
	return d.set[d.base], d.trials
}

// confirm proposes what looks better than the default again: the best twice, others that may be as good once. There are
// few of these a batch, so that confirming does not crowd out searching.
func (d *descent) confirm(best float64) {
	base := d.arms.samples[0].log()
	for i := 1; i < len(d.set) && len(d.trials) < confirmTrials; i++ {
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
