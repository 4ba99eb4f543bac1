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

// count puts a call into one of them, and says whether that is Overruled.
func (t *RanTotals) count(o state.Observation, j *joiner) (overruled bool) {
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
	case o.Ran.Path == actions.PathDefault:
		t.NotKnown++
	default:
		t.Chosen++
	}
	return false
}

// Groups are all calls counted.
func (t *RanTotals) Groups() uint64 {
	return t.Chosen + t.Default + t.Overruled + t.NotKnown + t.Aggregated + t.Disagreed + t.Declined
}
