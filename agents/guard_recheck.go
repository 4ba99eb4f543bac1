package agents

import (
	"math"

	"dynamiccl/state"
)

// maxRecheck bounds GuardConfig.RecheckTrials.
const maxRecheck = 8

// recheck measures the default again while another action is in force, each time after twice as many calls. Without it
// a default that got cheaper would never be noticed: the detector sees only what runs. While the default is in force,
// it measures again what the learner still wants but lost against the default in its latest calls.
type recheck struct {
	cfg    *GuardConfig
	every  int  // calls until the next round
	since  int  // calls since the last round began
	open   bool // a round is under way
	n      int  // its calls so far
	latest [maxRecheck]state.Observation
	before float64 // the default's log cost when the round began
	owed   int     // calls of a round that did not fit into the batches so far
	owedTo int     // their action
}

func (r *recheck) reset() { r.every, r.since, r.open, r.owed = r.cfg.RecheckCalls, 0, false, 0 }

// owe notes what did not fit into a batch: whoever takes one trial at a time gets the whole round all the same.
func (r *recheck) owe(i, calls int) { r.owedTo, r.owed = i, calls }

// due gives what the next batch must begin with, and how often; want is the learner's base.
func (r *recheck) due(g *Guard, want int) (i, times int) {
	if r.owed > 0 {
		return r.owedTo, r.owed
	}
	if r.since < r.every || g.kept || g.base == 0 && (want == 0 || !g.losing(want)) {
		return 0, 0
	}
	r.since = 0
	if g.base == 0 {
		r.every = min(2*r.every, r.cfg.RecheckLimit)
		return want, r.trials()
	}
	r.open, r.n = true, 0
	r.before = g.arms.samples[0].log()
	return 0, r.trials()
}

func (r *recheck) trials() int { return min(r.cfg.RecheckTrials, maxRecheck) }

// A round of few calls must differ by this much, and by this many standard errors, to say that conditions changed.
const (
	recheckStep   = 0.10
	recheckErrors = 4
)

// observe counts a call of action i; true when a round that has just ended says that conditions changed.
func (r *recheck) observe(g *Guard, i int, o *state.Observation) bool {
	r.since++
	if i != 0 || !r.open {
		return false
	}
	r.latest[r.n] = *o
	r.n++
	if r.n < r.trials() {
		return false
	}
	r.open = false
	r.every = min(2*r.every, r.cfg.RecheckLimit)
	se := g.arms.sigma() / math.Sqrt(float64(r.n))
	return math.Abs(g.arms.samples[0].recent(r.n)-r.before) > max(recheckStep, recheckErrors*se)
}
