package agents

import (
	"math"

	"dynamiccl/state"
)

// comeback tries again what an earlier condition had as better than what runs now, when by all that still runs it is that condition
// again. What failed alone, like a path of its own, is measured by nobody once it is left, so nothing shows when it has recovered:
// the detector sees what runs, and a recheck the default. One call of it, ever more rarely; where that is good again a few
// more, and if those are, too, conditions have changed.
type comeback struct {
	next   int // calls of the condition at which one is due
	on     int // action that is being tried; 0: none
	n      int // its calls so far
	came   bool
	latest [comebackCalls]state.Observation
}

// The first comes after comebackFirst calls of a condition, the next after as many calls again as there were, so that a return is
// found within the time that the failure took, but no more than comebackMost apart: a tenfold cost is 0.1% of as many calls.
const (
	comebackFirst = 256
	comebackMost  = 8192
	comebackCalls = 4
	comebackGain  = 0.10 // log cost below that of what runs
	comebackLike  = 0.35 // log cost by which what runs may differ from the earlier condition: as far as calls vary that are no jump
)

func (c *comeback) reset() { *c = comeback{came: c.came} }

// good says that the calls of the one under way so far were: more of it are expected to lose nothing.
func (c *comeback) good() bool { return c.n > 0 }

// due gives the action that is to be tried now, 0 when none, and how often.
func (c *comeback) due(g *Guard) (i, times int) {
	if c.on != 0 {
		if c.n == 0 {
			return c.on, 1
		}
		return c.on, comebackCalls - c.n
	}
	calls := g.arms.calls + g.budget.unseen
	if calls < max(c.next, comebackFirst) || g.kept || g.arms.samples[0].n == 0 {
		return 0, 0
	}
	c.next = calls + min(calls, comebackMost)
	c.on, c.n = c.candidate(g), 0
	return c.on, min(c.on, 1)
}

// candidate is the action that an earlier condition of the same kind had as cheapest by far, 0 when none.
func (c *comeback) candidate(g *Guard) int {
	base := g.arms.samples[g.base].log()
	best, least := 0, base-comebackGain
	for _, r := range g.memory.regimes {
		like := 0
		if r.n[g.base] > 0 {
			like = g.base
		}
		if math.Abs(g.arms.samples[like].log()-float64(r.logNs[like])) > comebackLike {
			continue
		}
		for i := range r.n {
			// What is measured cheaper than the base needs no help.
			if s := &g.arms.samples[i]; r.n[i] >= 2 && float64(r.logNs[i]) < least && (s.n == 0 || s.log() > base) {
				best, least = i, float64(r.logNs[i])
			}
		}
	}
	return best
}

// Stir has what was better before tried again soon: something else has recovered.
func (g *Guard) Stir() { g.comeback.next = 0 }

// CameBack reports that an action is as good again as it had been, once: others may be, too (Stir).
func (g *Guard) CameBack() bool {
	came := g.comeback.came
	g.comeback.came = false
	return came
}

// observe counts a call of action i; true when it was the last of those that say that conditions changed. Ends the try when one
// was not good.
func (c *comeback) observe(g *Guard, i int, o *state.Observation) bool {
	if c.on == 0 || i != c.on {
		return false
	}
	if math.Log(float64(o.CostNs())) > g.arms.samples[g.base].log()-comebackGain {
		c.on = 0
		return false
	}
	c.latest[c.n] = *o
	c.n++
	c.came = c.n == comebackCalls-1 // with the last there is no doubt, but a jump may be seen before
	if c.n < comebackCalls {
		return false
	}
	c.on = 0
	// Where the action's estimate has moved along already nothing is left to say.
	return g.arms.samples[i].log() > g.arms.samples[g.base].log()-comebackGain
}
