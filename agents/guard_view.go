package agents

import (
	"math"
	"slices"

	"dynamiccl/actions"
)

// Base is the action that Propose gave last, or the default where that was dropped since.
func (g *Guard) Base() actions.Action { return g.arms.set[g.base] }

// Estimate is what an action of the set was measured to cost in the present condition; N is 0 when it was not.
func (g *Guard) Estimate(a actions.Action) Estimate {
	if i, ok := g.arms.index[a]; ok {
		return g.arms.estimate(i)
	}
	return Estimate{Action: a}
}

// Charged is what of a call's cost the guard holds against an action of the set: of one that is well known, a single
// delayed call is not all its own.
func (g *Guard) Charged(a actions.Action, costNs float64) float64 {
	if i, ok := g.arms.index[a]; ok {
		return g.charged(i, costNs)
	}
	return costNs
}

// Estimates appends the estimates of all actions measured in the present condition, in the order of the set.
func (g *Guard) Estimates(dst []Estimate) []Estimate {
	for i := range g.arms.set {
		if g.arms.samples[i].n > 0 {
			dst = append(dst, g.arms.estimate(i))
		}
	}
	return dst
}

// Known are Estimates; until the default is measured in the present condition, they are those of the condition before: a program
// that ends then has learned that much, and nothing yet of what came.
func (g *Guard) Known() []Estimate {
	if g.arms.samples[0].n == 0 {
		return slices.Clone(g.ended)
	}
	return g.Estimates(nil)
}

// Shifts counts how often what was measured became that of a former condition: estimates are of the time since.
func (g *Guard) Shifts() int { return g.arms.shifts }

// Judged reports whether a and the default have been measured often enough to compare.
func (g *Guard) Judged(a actions.Action) bool {
	i, ok := g.arms.index[a]
	return ok && g.judged(i)
}

// intervalErrors is the two-sided 95% interval of a normal distribution.
const intervalErrors = 1.96

// SpeedUp is the default's cost over the base's with a 95% interval; 1, 1, 1 while the base is the default, or kept and not
// judged.
func (g *Guard) SpeedUp() (ratio, low, high float64) {
	if g.base == 0 || !g.judged(g.base) {
		return 1, 1, 1
	}
	gain, se := g.gain(g.base)
	return math.Exp(gain), math.Exp(gain - intervalErrors*se), math.Exp(gain + intervalErrors*se)
}

// Lost is what calls of other actions lost against NCCL's default since conditions changed, in calls of the default;
// negative when they gained.
func (g *Guard) Lost() float64 { return g.budget.lost(g) }
