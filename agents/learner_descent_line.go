package agents

import "dynamiccl/actions"

// line is one subspace: an algorithm and a protocol over channels, or a kernel of ours over CTAs. Positions are indices into arms.
type line struct {
	arms []int // of the set, by channels

	// What survey found.
	measured   int     // positions with samples
	best       int     // position of the cheapest measured one; without any, of the cheapest remembered; else -1
	remembered bool    // best is from memory
	cost       float64 // log ns of best; of an unknown line that of the default

	buf [3]int // what next gives
}

// survey finds the best of a line.
func (l *line) survey(d *descent, r *regime, base float64) {
	l.measured, l.best, l.remembered, l.cost = 0, -1, false, base
	for at, i := range l.arms {
		s := &d.arms.samples[i]
		if s.n == 0 {
			continue
		}
		l.measured++
		if c := s.log(); l.best < 0 || c < l.cost {
			l.best, l.cost = at, c
		}
	}
	if l.best >= 0 || r == nil {
		return
	}
	for at, i := range l.arms {
		if rel, ok := r.relative(i); ok && (l.best < 0 || base+rel < l.cost) {
			l.best, l.remembered, l.cost = at, true, base+rel
		}
	}
}

// A line is given up when its best is behind the best of all by this much log cost: the less of it is known, the more
// it may still gain. What is only remembered may have strayed by drift.
const (
	behindBase       = 0.05
	behindUnmeasured = 0.45
)

func (l *line) behind(best, drift float64) bool {
	if l.best < 0 {
		return false
	}
	slack := behindUnmeasured / float64(max(1, l.measured))
	if l.remembered {
		slack += drift
	}
	return l.cost-best > behindBase+slack
}

// next gives the positions to measure next: none when the line's minimum is enclosed.
func (l *line) next(d *descent) []int {
	last := len(l.arms) - 1
	out := l.buf[:0]
	switch {
	case l.remembered:
		return append(out, l.best)
	case l.measured == 0 && (d.bandwidth || last < 2 || d.set[l.arms[0]].Path != actions.PathCollective):
		return append(out, last)
	case l.measured == 0:
		return append(out, last, 0, last/2)
	}
	if at := l.between(d, l.best, -1); at >= 0 {
		out = append(out, at)
	}
	if at := l.between(d, l.best, +1); at >= 0 {
		out = append(out, at)
	}
	return out
}

// between is the position half way from the best to the next measured one in a direction; where none is measured, one
// as far out as the other side's next measured one, but at least one step. -1 when there is nothing to measure.
func (l *line) between(d *descent, from, direction int) int {
	at := from + direction
	for at >= 0 && at < len(l.arms) && d.arms.samples[l.arms[at]].n == 0 {
		at += direction
	}
	if at >= 0 && at < len(l.arms) {
		mid := (from + at) / 2
		if direction < 0 {
			mid = (from + at + 1) / 2
		}
		if mid == from || mid == at {
			return -1
		}
		return mid
	}
	back := from - direction
	for back >= 0 && back < len(l.arms) && d.arms.samples[l.arms[back]].n == 0 {
		back -= direction
	}
	step := 1
	if back >= 0 && back < len(l.arms) {
		step = max(1, (from-back)*direction)
	}
	out := min(max(0, from+direction*step), len(l.arms)-1)
	if out == from {
		return -1
	}
	return out
}
