package agents

import (
	"math"

	"dynamiccl/state"
)

// comeback tries again what was better before than what runs now, in an earlier condition or in this one, when by all that still
// runs it is as it was then. What failed alone, like a path of its own, is measured by nobody once it is left, so nothing shows when
// it has recovered: the detector sees what runs, and a recheck the default. Nor does a change show that makes a choice lose by less
// than an alarm wants: the choice is left, and its condition goes on. One call of it, ever more rarely; where that is good again a
// few more, and if those are, too, conditions have changed.
type comeback struct {
	had    []had // by action
	from   int   // calls of the condition when what was in force was left last
	next   int   // calls of the condition at which one is due
	on     int   // action that is being tried; 0: none
	n      int   // its calls so far
	came   bool
	latest [comebackCalls]state.Observation
}

// had is what an action in force cost when it was most surely better than the default.
type had struct {
	sure  float32 // by so much (log cost) beyond doubt; 0: never in force
	logNs float32
	base  float32 // the default's log cost then
}

// The first comes comebackFirst calls after what was in force has been left, or a condition has begun, the next after as many calls
// again as there were since, so that a return is found within the time that the failure took, but no more than comebackMost apart: a
// tenfold cost is 0.1% of as many calls.
const (
	comebackFirst  = 256
	comebackMost   = 8192
	comebackCalls  = 4
	comebackGain   = 0.10 // log cost below that of what runs, in the mean of the calls of a try, ...
	comebackErrors = 2    // ... and so many standard errors of it
	comebackLike   = 0.35 // log cost by which what runs may differ from the earlier condition: as far as calls vary that are no jump
)

func (c *comeback) reset() { *c = comeback{had: c.had, came: c.came} }

// note remembers what is in force, and has been judged.
func (c *comeback) note(g *Guard) {
	gain, se := g.gain(g.base)
	if sure := float32(gain - g.cfg.Confidence*se); sure > c.had[g.base].sure {
		c.had[g.base] = had{sure, float32(g.arms.samples[g.base].log()), float32(g.arms.samples[0].log())}
	}
}

// left says that what was in force no longer is, though conditions did not change as far as anybody knows.
func (c *comeback) left(g *Guard) {
	c.from = g.arms.calls + g.budget.unseen
	c.next = c.from + comebackFirst
}

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
	c.next = calls + min(max(calls-c.from, comebackFirst), comebackMost)
	c.on, c.n = c.candidate(g), 0
	return c.on, min(c.on, 1)
}

// candidate is the action that was cheapest by far, in an earlier condition of the same kind or when it was in force, 0 when none.
func (c *comeback) candidate(g *Guard) int {
	base := g.arms.samples[g.base].log()
	best, least := 0, base-comebackGain
	// What is measured cheaper than the base needs no help.
	dearer := func(i int) bool { return g.arms.samples[i].n == 0 || g.arms.samples[i].log() > base }
	for i, h := range c.had {
		moved := g.arms.samples[0].log() - float64(h.base)
		if expected := float64(h.logNs) + moved; h.sure > 0 && math.Abs(moved) <= comebackLike && expected < least && dearer(i) {
			best, least = i, expected
		}
	}
	for _, r := range g.memory.regimes {
		like := 0
		if r.n[g.base] > 0 {
			like = g.base
		}
		if math.Abs(g.arms.samples[like].log()-float64(r.logNs[like])) > comebackLike {
			continue
		}
		for i := range r.n {
			if r.n[i] >= 2 && float64(r.logNs[i]) < least && dearer(i) {
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
	c.latest[c.n] = *o
	c.n++
	gain := 0.0
	for _, o := range c.latest[:c.n] {
		gain += (g.arms.samples[g.base].log() - math.Log(float64(o.CostNs()))) / float64(c.n)
	}
	// Less in the beginning: a gain of 15% among calls that vary by 10% would be turned down two times of three.
	if least := max(comebackGain, comebackErrors*g.arms.sigma()/math.Sqrt(comebackCalls)); gain < least*min(1, 0.25+0.25*float64(c.n)) {
		c.on = 0
		return false
	}
	c.came = c.n == comebackCalls-1 // with the last there is no doubt, but a jump may be seen before
	if c.n < comebackCalls {
		return false
	}
	c.on = 0
	// Where the action's estimate has moved along already nothing is left to say.
	return g.arms.samples[i].log() > g.arms.samples[g.base].log()-comebackGain
}
