package tuner

// rhythm finds the order in which calls of a communicator come back: a training step makes the same calls each time. It
// knows a step by what it calls; nobody tells.
type rhythm struct {
	calls  []heardCall // by sequence number, rhythmCalls of them
	period int         // calls of a step; 0: not known
	shift  uint64      // the call of number -shift is the step's first
	order  []uint64    // what the step calls, by place
	heard  int         // calls since the period was found or lost
}

type heardCall struct {
	seq  uint64
	kind uint64
}

const (
	rhythmCalls    = 1024 // a power of two
	rhythmLongest  = 256  // calls of a step; three steps fit into what is remembered
	rhythmLeast    = 32   // calls that must agree with those a period before
	rhythmEvery    = 32   // calls between two searches
	rhythmPatience = 8192 // calls after which whoever has no rhythm is taken to have none
)

// hear takes in a call. It reports that a step was found whose places are others than before.
func (r *rhythm) hear(seq, kind uint64) (changed bool) {
	if r.calls == nil {
		r.calls = make([]heardCall, rhythmCalls)
	}
	r.calls[seq%rhythmCalls] = heardCall{seq, kind}
	r.heard++
	if r.period > 0 {
		if at, _ := r.place(seq); r.order[at] != kind {
			r.period, r.heard = 0, 0
		}
		return false
	}
	if r.heard%rhythmEvery != 0 {
		return false
	}
	for p := 1; p <= rhythmLongest; p++ {
		if order, ok := r.recurs(seq, p); ok {
			r.heard = 0
			return r.adopt(order)
		}
	}
	return false
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
// the former places.
func (r *rhythm) adopt(order []uint64) (changed bool) {
	r.period = len(order)
	if len(order) == len(r.order) {
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
	r.order, r.shift = order, 0
	return true
}

// place is where in the step a call comes; false: nobody knows.
func (r *rhythm) place(seq uint64) (at int, ok bool) {
	if r.period == 0 {
		return 0, false
	}
	return int((seq + r.shift) % uint64(r.period)), true
}
