package tuner

import (
	"slices"

	"dynamiccl/actions"
	"dynamiccl/state"
)

func onGIN(a actions.Action) bool { return a.Path == actions.PathGIN }

// warmUp has trials of kernels on GIN come last and in a row, and doubles the first of them, where what is in force is something
// else: a path that rested needs a call to be itself again (over the carrier of docs/design.md, decision 31, 250 us where the
// next ones take 12), and what that call takes is not what the choice would cost in force. at is that call's index, -1: none.
func warmUp(base actions.Action, trials []actions.Action) (warmed []actions.Action, at int) {
	if onGIN(base) || !slices.ContainsFunc(trials, onGIN) {
		return trials, -1
	}
	warmed = slices.Clone(trials)
	slices.SortStableFunc(warmed, func(a, b actions.Action) int {
		switch {
		case onGIN(a) == onGIN(b):
			return 0
		case onGIN(a):
			return 1
		}
		return -1
	})
	at = slices.IndexFunc(warmed, onGIN)
	return slices.Insert(warmed, at, warmed[at]), at
}

// warming reports that a call is the one that warms up, and has it paid for. To be asked before the call is passed.
func (b *bucket) warming(o *state.Observation) bool {
	switch {
	case b.warmAt < 0 || !b.published || int32(o.Plan-b.since) < 0 || o.Action != b.entry.Trials[b.warmAt]:
		return false
	case o.EntryCall > 0 && int(o.EntryCall) != b.warmAt+1, o.EntryCall == 0 && b.nextTrial > b.warmAt:
		return false
	}
	b.guard.Spend(*o)
	return true
}
