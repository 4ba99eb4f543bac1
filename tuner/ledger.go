package tuner

import (
	"math"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

// Ledger is what choosing was worth over the measured calls of a bucket, since it is known. A call is held against what
// NCCL's default was measured to cost in the same condition; calls before anything is known of that are left out.
type Ledger struct {
	Calls     uint64  // held against the default
	DefaultNs float64 // what they would have taken with it
	SavedNs   float64 // by choices in force; negative: lost
	TrialNs   float64 // lost by calls that tried something; negative: gained
	Trials    uint64  // calls that tried something else than the default
}

// book enters one call.
func (l *Ledger) book(o state.Observation, base actions.Action, g *agents.Guard) {
	standard := g.Estimate(actions.Default)
	cost := float64(o.CostNs())
	if standard.N == 0 || cost <= 0 {
		return
	}
	defaultNs := math.Exp(standard.LogNs)
	l.Calls++
	l.DefaultNs += defaultNs
	if o.Action == actions.Default {
		return
	}
	cost = g.Charged(o.Action, cost)
	if o.Action == base {
		l.SavedNs += defaultNs - cost
		return
	}
	l.Trials++
	l.TrialNs += cost - defaultNs
}

// Add takes another bucket's ledger in.
func (l *Ledger) Add(o Ledger) {
	l.Calls += o.Calls
	l.DefaultNs += o.DefaultNs
	l.SavedNs += o.SavedNs
	l.TrialNs += o.TrialNs
	l.Trials += o.Trials
}
