package agents

import "math"

// chance measures again what was measured once: one delayed call of an action that would be the best must not rule it out
// for as long as the condition lasts, whoever learns. Cheapest first, ever more rarely, and a third time where two calls
// disagree.
type chance struct {
	last int // calls of the condition at the latest one, whether anybody measured them or not
	on   int // action that is being measured again; 0: none
}

const (
	chanceEvery = 128 // calls; and then
	chanceShare = 4   // a part of the calls so far
)

func (c *chance) reset() { *c = chance{} }

// due gives the action that has a chance now, 0 when none.
func (c *chance) due(g *Guard) int {
	if c.on != 0 && g.arms.samples[c.on].n > 1 {
		s := &g.arms.samples[c.on]
		if s.n == 2 && math.Abs(float64(s.logs[0]-s.logs[1])) > max(jumpLeast, doubtSigmas*g.arms.sigma()) {
			return c.on
		}
		c.on = 0
	}
	made := g.budget.made(g)
	if made-c.last < max(chanceEvery, made/chanceShare) || g.arms.samples[0].n == 0 {
		return c.on
	}
	c.last, c.on = made, 0
	limit := g.arms.samples[0].log() + g.cfg.Hopeless
	for i := 1; i < len(g.arms.set); i++ {
		if s := &g.arms.samples[i]; s.n == 1 && s.log() < limit {
			c.on, limit = i, s.log()
		}
	}
	return c.on
}
