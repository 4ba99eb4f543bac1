package agents

import (
	"slices"

	"dynamiccl/state"
)

const (
	lateWindow       = 64 // group calls of a communicator that are looked back on
	lateCheckCalls   = 8  // how often, in calls
	lateEpisodeCalls = 16 // late calls since a change that are enough when something did change
	lateSuspectCalls = 4  // late calls since a change that make other diagnoses wait
	minLateNs        = 5000
)

// lateRanks remembers who arrived last in the latest group calls.
type lateRanks struct {
	ring [lateWindow]arrival
	n    int
}

type arrival struct {
	call  uint64
	rank  int32
	large bool // the others waited for a time that matters
	skew  state.Ns
}

// add takes in one call. A skew matters from a quarter of the cost: below, jitter decides who is last.
func (l *lateRanks) add(call uint64, o state.Observation) {
	large := o.FirstRank >= 0 && o.SkewNs >= minLateNs && o.SkewNs >= o.SignalNs/4
	l.ring[l.n%lateWindow] = arrival{call, o.FirstRank, large, o.SkewNs}
	l.n++
}

// dominant finds the one rank that is last in seven of eight calls with a large skew, when at least minLate calls since
// the given one have such a skew and these are at least half. With two ranks that take turns by chance, 28 of 32 happen
// once in 50,000 windows.
func (l *lateRanks) dominant(since uint64, minLate int) (rank int32, lateNs state.Ns, ok bool) {
	votes, calls, late := 0, 0, 0
	for i := range min(l.n, lateWindow) {
		a := &l.ring[i]
		if a.call < since {
			continue
		}
		calls++
		if !a.large {
			continue
		}
		late++
		switch { // Boyer and Moore's majority vote
		case votes == 0:
			rank, votes = a.rank, 1
		case a.rank == rank:
			votes++
		default:
			votes--
		}
	}
	if late < minLate || 2*late < calls {
		return -1, 0, false
	}
	var skews [lateWindow]state.Ns
	own := 0
	for i := range min(l.n, lateWindow) {
		if a := &l.ring[i]; a.call >= since && a.large && a.rank == rank {
			skews[own] = a.skew
			own++
		}
	}
	if 8*own < 7*late {
		return -1, 0, false
	}
	slices.Sort(skews[:own])
	return rank, skews[own/2], true
}

// gone says that a rank found late before is late in less than a quarter of the window now.
func (l *lateRanks) gone(rank int32) bool {
	own := 0
	for i := range min(l.n, lateWindow) {
		if a := &l.ring[i]; a.large && a.rank == rank {
			own++
		}
	}
	return l.n >= lateWindow && 4*own < lateWindow
}
