package tuner

import (
	"slices"

	"dynamiccl/actions"
	"dynamiccl/state"
)

func onGIN(a actions.Action) bool { return a.Path == actions.PathGIN }

// warmUps is how many calls bring a path back that rested. Over the carrier of docs/design.md, decision 31, the first call on GIN takes
// 50 to 400 us, the second 9 to 20 us as in force, but 72 us whenever the first took long on one context (2x H200). NCCL's proxy
// thread sleeps while no call is its own: AllToAll of 16 KiB over sockets takes 35 us in force and 72 us by itself among calls on GIN.
const warmUps = 2

// warmUp has trials of the other path than what is in force, GIN or NCCL's network, come last and in a row, and puts warmUps more
// calls before the first of them: what those take is not what the choice would cost in force. at is the first one's index, -1: none.
func warmUp(base actions.Action, trials []actions.Action) (warmed []actions.Action, at int) {
	var others, rested []actions.Action
	for _, a := range trials {
		if onGIN(a) != onGIN(base) {
			rested = append(rested, a)
		} else {
			others = append(others, a)
		}
	}
	if len(rested) == 0 {
		return trials, -1
	}
	return slices.Concat(others, slices.Repeat(rested[:1], warmUps), rested), len(others)
}

// warming reports that a call is one of those that warm up, and has it paid for. To be asked before the call is passed.
func (b *bucket) warming(o *state.Observation) bool {
	n := int(o.EntryCall) - b.entry.Skip
	switch {
	case b.warmAt < 0 || !b.published || int32(o.Plan-b.since) < 0 || o.Action != b.entry.Trials[b.warmAt]:
		return false
	case o.EntryCall > 0 && (n <= b.warmAt || n > b.warmAt+warmUps):
		return false
	case o.EntryCall == 0 && b.nextTrial >= b.warmAt+warmUps:
		return false
	}
	b.guard.Spend(*o)
	return true
}
