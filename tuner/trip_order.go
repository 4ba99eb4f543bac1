package tuner

import (
	"cmp"
	"slices"

	"dynamiccl/state"
)

// A rank that looks at what its puts took finds them by their places, which go round: those that are timed closely behind the others, and
// the newest of each in front of the oldest. Half a second's puts in that order, on both sides of a switch, are a change, its end and the
// change again. So what came since the last Tick is taken in by the calls' numbers, which both ranks count alike.

// followHeld takes in what both ranks told of since the last Tick, in the order in which it was put. Those of graphs count calls by
// themselves: nothing says which came first.
func (c *Core) followHeld(nowNs state.Ns, m *comm) {
	if m.trips == nil {
		return
	}
	held := m.trips.held
	slices.SortStableFunc(held, func(a, b joinedTrip) int {
		switch {
		case a.inGraph == b.inGraph:
			return cmp.Compare(int32(a.number-b.number), 0) // modulo 2^32
		case a.inGraph:
			return 1
		}
		return -1
	})
	for i := range held {
		c.follow(nowNs, m, &held[i])
	}
	m.trips.held = held[:0]
}
