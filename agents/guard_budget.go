package agents

import (
	"math"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// budget bounds what exploration loses. Law: in calls of the default, what all other actions lost since conditions
// changed stays below carry + Income*calls made, plus GainShare of what they gained, but for the error of one batch's
// predictions.
type budget struct {
	cfg       *GuardConfig
	carry     float64 // default calls granted at the start of this condition
	sumNs     float64 // cost of all calls but the default's, since conditions changed
	calls     int     // those calls
	trustedNs float64 // likewise of what is trusted (Guard.Keep), which ends by itself and is no exploration: what that loses nothing else has to make good
	trusted   int
	unseen    int     // calls that nobody measured, since conditions changed: they earn, too
	left      float64 // of this batch
	pending   []uint8 // trials proposed last and not seen yet, by action
	older     []uint8 // those of the batch before, which may still be under way
}

// steadyCalls is how well an action must be known before a single delayed call is not charged to it any more, and
// steadyLog the greatest charge then, over its estimate.
const (
	steadyCalls = 8
	steadyLog   = 0.5
)

func (b *budget) charge(g *Guard, i int, o *state.Observation) {
	costNs := float64(o.CostNs())
	b.unseen += int(o.Unseen)
	if b.older[i] > 0 {
		b.older[i]--
	} else if b.pending[i] > 0 {
		b.pending[i]--
	}
	switch {
	case i == 0 || i == g.comeback.word.gift:
	case i == g.base && g.trusted > 0 && g.trusts():
		b.trustedNs += g.charged(i, costNs)
		b.trusted++
	default:
		b.sumNs += g.charged(i, costNs)
		b.calls++
	}
}

// charged is what of a call's cost is held against action i.
func (g *Guard) charged(i int, costNs float64) float64 {
	if s := &g.arms.samples[i]; s.n >= steadyCalls {
		return min(costNs, math.Exp(s.log()+steadyLog))
	}
	return costNs
}

// lost is what the calls of other actions lost against the default, negative when they gained.
func (b *budget) lost(g *Guard) float64 {
	if g.arms.samples[0].n == 0 {
		return 0 // nothing to compare with yet: the pending batch is all that can be charged
	}
	defaultNs := math.Exp(g.arms.samples[0].log())
	return b.sumNs/defaultNs - float64(b.calls) + min(0, b.trustedNs/defaultNs-float64(b.trusted))
}

func (b *budget) available(g *Guard) float64 {
	lost := b.lost(g)
	if lost < 0 {
		lost *= b.cfg.GainShare
	}
	return b.carry + b.earned(g) - lost
}

// made is how many calls there were since conditions changed, measured or not.
func (b *budget) made(g *Guard) int { return g.arms.calls + b.unseen }

func (b *budget) earned(g *Guard) float64 { return b.cfg.Income * float64(b.made(g)) }

// shift carries what is left into a new condition. The latest calls may have been charged for the change of condition,
// so at least what the calls of this one earned is granted again.
func (b *budget) shift(g *Guard) {
	earned := min(b.earned(g), b.cfg.Allowance)
	b.carry = min(max(b.available(g), earned), b.cfg.CarryCap)
	b.sumNs, b.calls, b.trustedNs, b.trusted, b.unseen = 0, 0, 0, 0, 0
}

// Inherit has what exploration may lose go on where another guard of the bucket left it: choices that come and go must not earn an
// allowance each time.
func (g *Guard) Inherit(from *Guard) { g.budget.carry = from.budget.available(from) }

// reconfigure changes the budget while it is in use. Nothing is earned or lost for the calls so far; what is left now is
// cut to what may be carried, and a greater allowance is granted.
func (b *budget) reconfigure(g *Guard, cfg GuardConfig) {
	if cfg == g.cfg {
		return
	}
	left := min(b.available(g)+max(0, cfg.Allowance-b.cfg.Allowance), cfg.CarryCap)
	g.cfg = cfg
	b.carry += left - b.available(g)
}

// open starts a batch.
func (b *budget) open(g *Guard) {
	b.pending, b.older = b.older, b.pending
	clear(b.pending)
	b.left = b.available(g)
	for i, n := range b.older {
		if n > 0 {
			b.left -= float64(n) * g.excess(i)
		}
	}
}

// blindTrials is how often an action that was not measured yet may be in one batch: more calls would tell little more
// than these, and cost as much each time when the prediction is wrong.
const blindTrials = guardMinChoice

// reserve takes what a trial is expected to lose out of the batch; false when that is more than is left, or when
// predictions have lost more than was granted: then only what is measured cheaper than the default may be tried.
func (b *budget) reserve(g *Guard, i int) bool {
	e := g.excess(i)
	if s := &g.arms.samples[i]; b.left < 0 && (s.n == 0 || s.log() >= g.arms.samples[0].log()) ||
		s.n == 0 && b.pending[i] >= blindTrials {
		return false
	}
	if e > 0 && e > b.left {
		return false
	}
	b.left -= e
	if b.pending[i] < math.MaxUint8 {
		b.pending[i]++
	}
	return true
}

// excess is what one call of i is expected to lose, in calls of the default; never less than 0: gains are counted when
// they are measured.
func (g *Guard) excess(i int) float64 {
	mean, sd := g.model.predict(i)
	return max(0, math.Exp(mean+sd*sd/2)-1)
}

// worth reports whether a trial of i may tell something: not when a sample of it was bad, and not when a neighbour or
// the model says that it is hopeless.
func (g *Guard) worth(i int) bool {
	base := &g.arms.samples[0]
	if base.n > 0 && g.arms.samples[i].n > 0 {
		return g.arms.samples[i].log()-base.log() < g.cfg.Bad
	}
	if mean, _ := g.model.predict(i); mean > g.cfg.Hopeless {
		return false
	}
	if base.n == 0 {
		return true
	}
	for j := range g.arms.set {
		if s := &g.arms.samples[j]; s.n > 0 && g.neighbours(i, j) && s.log()-base.log() > g.cfg.Hopeless {
			return false
		}
	}
	return true
}

// neighbours reports whether i and j are the same algorithm and protocol, or the same kernel of ours, with no more than an
// octave of channels or CTAs between.
func (g *Guard) neighbours(i, j int) bool {
	a, b := g.arms.set[i], g.arms.set[j]
	return i != j && a.Kind() == b.Kind() && (a.Path == actions.PathCollective || a.Ours()) &&
		int(a.Channels) <= 2*int(b.Channels) && int(b.Channels) <= 2*int(a.Channels)
}
