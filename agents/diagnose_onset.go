package agents

import (
	"cmp"
	"math"
	"slices"
)

// onset says since which call costs are other than expected, from one on since which a chart has not been at zero. A chart that noise had
// taken a part of the way says so of calls before the change, which are half of the evidence then. So the remembered calls of all sizes are
// parted where the later ones are likeliest to have one level and those before to be as expected: the greatest n*mean^2 of n calls.
func (d *Diagnoser) onset(since uint64, up bool) uint64 {
	calls := d.offs[:0]
	for _, e := range d.order {
		for i := max(0, e.seen-recentCalls); i < e.seen; i++ {
			s := e.recent[i%recentCalls]
			r := e.reference(s.key)
			if r == nil || s.call < since {
				continue
			}
			sigma := math.Max(math.Sqrt(r.levels[0].variance), e.detector.leastScale(s.key.action))
			z := clamp((s.signal-r.signal)/sigma, winsorAt)
			if !up {
				z = -z
			}
			calls = append(calls, off{s.call, z})
		}
	}
	d.offs = calls
	slices.SortFunc(calls, func(a, b off) int { return cmp.Compare(b.call, a.call) })
	most, sum := 0.0, 0.0
	for i := range calls {
		sum += calls[i].z
		if v := sum * sum / float64(i+1); sum > 0 && v > most {
			most, since = v, calls[i].call
		}
	}
	return since
}

// off is how far a call is from what was expected, in standard deviations, the way of the alarm.
type off struct {
	call uint64
	z    float64
}
