package agents

import (
	"slices"

	"dynamiccl/actions"
)

// A context's queue takes one put after the other. Where a kernel has more CTAs than contexts a put may be any of several in its queue, and
// what is added to each is added to it once for each before it, too. Taken for puts that are alone in theirs, 1.3 us more each way are
// 2.6 us of 11 and 4.7 of 17, which is a multiple of the time. Both may be of one size, so a size's calls are told apart by that.

// queue is how many puts there may be in a put's queue; 1 for what is no put, or where nobody knows.
func (e *evidence) queue(a actions.Action) uint8 {
	if e.detector == nil || !e.detector.puts || a.Contexts == 0 {
		return 1
	}
	return uint8(max(1, (int(a.Channels)+int(a.Contexts)-1)/int(a.Contexts)))
}

// apart adds calls to kinds, summed up by how long their queues are.
func apart(after []deviation, longest uint8, kinds []shift) []shift {
	var buf [recentCalls + evidenceCalls]deviation
	for queue := 1; queue <= int(longest); queue++ {
		own := buf[:0]
		for i := range after {
			if int(after[i].queue) == queue {
				own = append(own, after[i])
			}
		}
		if len(own) >= minShiftCalls {
			s := sumOf(own)
			s.after, s.queue = nil, uint8(queue)
			kinds = append(kinds, s)
		}
	}
	return kinds
}

// kindsOf gives shifts apart by how long their queues are, as many as are fitted.
func kindsOf(shifts []shift) (kinds []shift) {
	if !slices.ContainsFunc(shifts, func(s shift) bool { return s.kinds != nil }) {
		return shifts[:min(len(shifts), maxFitted)]
	}
	for i := range shifts {
		s := &shifts[i]
		own := shifts[i : i+1]
		if s.kinds != nil {
			own = *s.kinds
		}
		for _, k := range own {
			if len(kinds) == maxFitted {
				return kinds
			}
			k.bytes, k.put, k.alarmed = s.bytes, s.put, s.alarmed
			kinds = append(kinds, k)
		}
	}
	return kinds
}
