package tuner

import (
	"slices"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// RanTotals say of each group call observed (Totals.Groups) whether what ran is what was chosen: every one is in one of them, whatever
// its times are worth. What else ranks sampled no group call came of: Totals.Incomplete, Late, Unknown, and what rings dropped.
type RanTotals struct {
	Chosen     uint64 `json:"chosen"`     // what was chosen, perhaps on fewer channels or CTAs
	Default    uint64 `json:"default"`    // NCCL was left to choose: whatever ran is right
	Overruled  uint64 `json:"overruled"`  // another algorithm, protocol or kernel
	NotKnown   uint64 `json:"not_known"`  // no rank could say what ran
	Aggregated uint64 `json:"aggregated"` // in a group of calls that NCCL made one of, which has one algorithm
	Disagreed  uint64 `json:"disagreed"`  // ranks do not say the same
	Declined   uint64 `json:"declined"`   // NCCL ran something else than a name that in a group is a wish
	Untold     uint64 `json:"untold"`     // NCCL's profiler has no event for it: LL was chosen where it is a device kernel, or it is a Broadcast from 2.29.2 on
}

// mostOverruled are kept: one has a reason that others have as well.
const mostOverruled = 8

// OverruledCall is a group call that ran something else than was asked for.
type OverruledCall struct {
	Collective string `json:"collective"`
	Bytes      uint64 `json:"bytes"`
	Asked      string `json:"asked"`
	Ran        string `json:"ran"`
	Ranks      int    `json:"ranks"`
	Nodes      int    `json:"nodes"`
}

// OverruledCalls are the first of RanTotals.Overruled.
func (c *Core) OverruledCalls() []OverruledCall { return slices.Clone(c.overruled) }

func (c *Core) keepOverruled(shape state.Shape, s *Sample, o state.Observation) {
	if len(c.overruled) < mostOverruled {
		c.overruled = append(c.overruled, OverruledCall{s.Bucket.Collective.String(), s.Bytes, o.Action.String(), o.Ran.String(), shape.Ranks, shape.Nodes})
	}
}

// mostUnknown kinds are kept apart.
const mostUnknown = 32

// UnknownCalls are those of RanTotals.NotKnown that are of one collective and one choice, on communicators of one shape.
type UnknownCalls struct {
	Collective string `json:"collective"`
	Asked      string `json:"asked"`
	Ranks      int    `json:"ranks"`
	Nodes      int    `json:"nodes"`
	Bytes      uint64 `json:"bytes"` // of the first
	Calls      uint64 `json:"calls"`
}

// UnknownCalls are RanTotals.NotKnown by kind; what is of further kinds than are kept is in none.
func (c *Core) UnknownCalls() []UnknownCalls { return slices.Clone(c.unknown) }

func (c *Core) countUnknown(shape state.Shape, s *Sample, o state.Observation) {
	is := UnknownCalls{Collective: s.Bucket.Collective.String(), Asked: o.Action.String(), Ranks: shape.Ranks, Nodes: shape.Nodes, Bytes: s.Bytes}
	for i := range c.unknown {
		if k := &c.unknown[i]; k.Collective == is.Collective && k.Asked == is.Asked && k.Ranks == is.Ranks && k.Nodes == is.Nodes {
			k.Calls++
			return
		}
	}
	if len(c.unknown) < mostUnknown {
		is.Calls = 1
		c.unknown = append(c.unknown, is)
	}
}

// count puts a call into one of them, and says whether that is Overruled. untold: NCCL's profiler has no event for it.
func (t *RanTotals) count(o state.Observation, j *joiner, untold bool) (overruled bool) {
	switch {
	case j.differs:
		t.Disagreed++
	case j.aggregated:
		t.Aggregated++
	case j.wished && overrules(o.Ran, o.Action):
		t.Declined++
	case overrules(o.Ran, o.Action):
		t.Overruled++
		return true
	case o.Action.Path == actions.PathDefault:
		t.Default++
	case o.Ran.Path == actions.PathDefault && untold:
		t.Untold++
	case o.Ran.Path == actions.PathDefault:
		t.NotKnown++
	default:
		t.Chosen++
	}
	return false
}

// Groups are all calls counted.
func (t *RanTotals) Groups() uint64 {
	return t.Chosen + t.Default + t.Overruled + t.NotKnown + t.Aggregated + t.Disagreed + t.Declined + t.Untold
}
