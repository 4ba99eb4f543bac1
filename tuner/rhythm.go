package tuner

import (
	"math"
	"slices"
)

// rhythm finds the order in which calls of a communicator come back: a training step makes the same calls each time. It
// knows a step by what it calls and, where equal calls follow each other, by how long it is from one to the next.
type rhythm struct {
	calls  []heardCall // by sequence number, rhythmCalls of them
	period int         // calls of a step; 0: not known
	shift  uint64      // the call of number -shift is the step's first
	order  []uint64    // what the step calls, by place
	apart  bool        // its calls alone come back sooner: only what is between them tells the places apart
	fixed  bool        // no other step is looked for, and not all calls are heard: other calls may come in between
	heard  int         // calls since the period was found or lost
}

type heardCall struct {
	seq   uint64
	kind  uint64
	logNs float64 // logarithm of the time to the next call; 0: not known
}

const (
	rhythmCalls   = 1024 // a power of two
	rhythmLongest = 256  // calls of a step; three steps fit into what is remembered
	rhythmLeast   = 32   // calls that must agree with those a period before
	rhythmEvery   = 32   // calls between two searches
	rhythmFirst   = 256  // calls before the first one, for intervals to show a step of up to 85 calls; longer ones show later
	// Intervals that come back after more calls do so by that much better, or it is chance; those that stray by no more than
	// rhythmClose (as logarithms) need no better.
	rhythmCloser   = 0.7
	rhythmClose    = 0.003
	rhythmPatience = 8192 // calls after which whoever has no rhythm is taken to have none
)

// hear takes in a call. It reports that a step was found whose places are others than before, or that there is another one than the fixed one.
func (r *rhythm) hear(seq, kind uint64) (changed bool) {
	if r.calls == nil {
		r.calls = make([]heardCall, rhythmCalls)
	}
	r.calls[seq%rhythmCalls] = heardCall{seq: seq, kind: kind}
	r.heard++
	if r.period > 0 {
		if at, _ := r.place(seq); r.order[at] != kind {
			r.period, r.heard = 0, 0
			if r.fixed { // neither this call nor those before it say where the step begins now
				clear(r.calls)
			}
			return false
		}
		if r.fixed || r.heard != rhythmCalls { // all that is remembered is of this step now
			return false
		}
		longer := r.closest(seq, r.period)
		order, ok := r.recurs(seq, longer)
		return ok && longer > r.period && r.adopt(order, true)
	}
	if r.heard%rhythmEvery != 0 || len(r.order) == 0 && r.heard < rhythmFirst {
		return false
	}
	if r.fixed {
		shift, fit := r.turned()
		if fit == 1 || fit > 1 && r.heard >= rhythmFirst/2 { // any of them has equal places lie a step apart
			r.period, r.shift, r.heard = len(r.order), shift, 0
		}
		return fit == 0 && r.heard >= rhythmFirst
	}
	for p := 1; p <= rhythmLongest; p++ {
		if order, ok := r.recurs(seq, p); ok {
			longer := r.closest(seq, p)
			if again, ok := r.recurs(seq, longer); ok {
				order = again
			}
			r.heard = 0
			return r.adopt(order, len(order) > p)
		}
	}
	return false
}

// took tells how long it was from a call that was heard to the next one.
func (r *rhythm) took(seq uint64, intervalNs float64) {
	if c := &r.calls[seq%rhythmCalls]; c.seq == seq {
		c.logNs = math.Log(max(1, intervalNs))
	}
}

// closest is the multiple of p after which intervals come back best, the least one of equals.
func (r *rhythm) closest(newest uint64, p int) (best int) {
	best = p
	least, ok := r.strays(newest, p)
	for m := 2 * p; ok && least > rhythmClose && m <= rhythmLongest; m += p {
		if stray, ok := r.strays(newest, m); ok && stray < rhythmCloser*least {
			best, least = m, stray
		}
	}
	return best
}

// strays is the mean of how far intervals are from those p calls before, as logarithms, of which a pause counts as one.
func (r *rhythm) strays(newest uint64, p int) (mean float64, ok bool) {
	pairs := 0
	for back := uint64(0); back+uint64(p) < rhythmCalls && back+uint64(p) <= newest; back++ {
		c, before := r.calls[(newest-back)%rhythmCalls], r.calls[(newest-back-uint64(p))%rhythmCalls]
		if c.seq == newest-back && before.seq == newest-back-uint64(p) && c.logNs > 0 && before.logNs > 0 {
			mean += min(1, math.Abs(c.logNs-before.logNs))
			pairs++
		}
	}
	return mean / float64(max(1, pairs)), pairs >= max(2*p, rhythmLeast)
}

// at gives the kind of a call that was heard.
func (r *rhythm) at(seq uint64) (kind uint64, ok bool) {
	c := r.calls[seq%rhythmCalls]
	return c.kind, c.seq == seq && c.kind != 0
}

// recurs reports whether the latest calls are those of p calls before, and gives them by sequence number modulo p.
func (r *rhythm) recurs(newest uint64, p int) (order []uint64, ok bool) {
	agree := 0
	for back := uint64(0); back+uint64(p) < rhythmCalls && back+uint64(p) <= newest && agree < max(2*p, rhythmLeast); back++ {
		kind, heard := r.at(newest - back)
		before, too := r.at(newest - back - uint64(p))
		switch {
		case !heard || !too:
		case kind != before:
			return nil, false
		default:
			agree++
		}
	}
	if agree < max(2*p, rhythmLeast) {
		return nil, false
	}
	order = make([]uint64, p)
	filled := 0
	for back := uint64(0); back <= newest && back < rhythmCalls && filled < p; back++ {
		if kind, heard := r.at(newest - back); heard && order[(newest-back)%uint64(p)] == 0 {
			order[(newest-back)%uint64(p)] = kind
			filled++
		}
	}
	return order, filled == p
}

// adopt takes a step over. One that is the former step begun at another number (the program made other calls in between) has
// the former places, unless its calls do not tell where it begins.
func (r *rhythm) adopt(order []uint64, apart bool) (changed bool) {
	r.period = len(order)
	if len(order) == len(r.order) && !apart && !r.apart {
		for turn := range order {
			same := true
			for i := range order {
				same = same && order[i] == r.order[(i+turn)%len(order)]
			}
			if same {
				r.shift = uint64(turn)
				return false
			}
		}
	}
	r.order, r.shift, r.apart = order, 0, apart
	return true
}

// turned gives a shift by which all calls that are remembered lie in the step, and how many do that.
func (r *rhythm) turned() (shift uint64, fit int) {
	n := uint64(len(r.order))
	for turn := range n {
		if !slices.ContainsFunc(r.calls, func(c heardCall) bool { return c.kind != 0 && c.kind != r.order[(c.seq+turn)%n] }) {
			shift, fit = turn, fit+1
		}
	}
	return shift, fit
}

// place is where in the step a call comes; false: nobody knows.
func (r *rhythm) place(seq uint64) (at int, ok bool) {
	if r.period == 0 {
		return 0, false
	}
	return int((seq + r.shift) % uint64(r.period)), true
}
