package tuner

import "dynamiccl/state"

// Groups puts the samples of one communicator together, call by call, as a Core does, and decides nothing: it is how what
// a Core would measure is held against another clock. The zero value is not usable.
type Groups struct{ joiner joiner }

// NewGroups makes the Groups of a communicator of so many ranks.
func NewGroups(ranks int) *Groups { return &Groups{joiner{heard: allRanks(ranks)}} }

// Add takes one sample. ok: it completed its call, whose cost is in o.
func (g *Groups) Add(s *Sample) (o state.Observation, ok bool) {
	o, bad, done := g.joiner.add(0, s)
	return o, done && !bad && !g.joiner.slow
}

// Totals counts what did not become an observation.
func (g *Groups) Totals() (t Totals) {
	t.addJoiner(&g.joiner)
	return t
}
