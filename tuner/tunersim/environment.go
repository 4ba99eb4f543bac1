package tunersim

import (
	"math"
	"math/rand/v2"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// Noise is how single calls differ from the table.
type Noise struct {
	Sigma    float64 // standard deviation of a call's log cost; its median is the table's
	TailProb float64 // part of calls that are delayed
	TailLog  float64 // mean of the log factor of a delayed call (exponential, so the factor is a Pareto variable)
	SkewNs   float64 // mean lateness of a rank (exponential): the others wait for it and measure more
	LostProb float64 // part of group calls that miss a sample and are never seen
}

// DefaultNoise is 5% noise, one call of a hundred delayed, ranks late by 3 us, one group of fifty lost.
func DefaultNoise() Noise {
	return Noise{Sigma: 0.05, TailProb: 0.01, TailLog: 0.7, SkewNs: 3000, LostProb: 0.02}
}

// Phase is a condition and how many calls of the bucket it lasts.
type Phase struct {
	Table *Table
	Calls int
}

// Environment answers calls of one bucket. Deterministic: same source, same calls, same durations.
type Environment struct {
	phases []Phase
	bucket state.Bucket
	noise  Noise
	rng    *rand.Rand
	ranks  []state.Ns // scratch

	phase int
	calls int // in this phase
	seq   uint64
	nowNs state.Ns
}

// NewEnvironment starts at the first call of the first phase.
func NewEnvironment(phases []Phase, b state.Bucket, noise Noise, rng *rand.Rand) *Environment {
	return &Environment{phases: phases, bucket: b, noise: noise, rng: rng, ranks: make([]state.Ns, phases[0].Table.Shape.Ranks)}
}

// Call is what one collective call was.
type Call struct {
	Phase   int
	TableNs float64    // without noise
	RankNs  []state.Ns // duration on every rank; valid until the next call
	Lost    bool       // a sample is missing: no observation
	Seen    state.Observation
}

// Table is the condition of the next call; nil when all phases are over.
func (e *Environment) Table() *Table {
	if e.phase >= len(e.phases) {
		return nil
	}
	return e.phases[e.phase].Table
}

// Phase is the number of the next call's phase and of the call in it.
func (e *Environment) Phase() (phase, call int) { return e.phase, e.calls }

// counterShare is local completion over remote visibility; any constant will do, the learners charge the signal.
const counterShare = 0.8

// Call runs an action. An action that this condition's table lacks costs what NCCL's default does: NCCL falls back.
func (e *Environment) Call(a actions.Action) Call {
	t := e.Table()
	cost, ok := t.Cost(e.bucket, a)
	if !ok {
		cost, _ = t.Default(e.bucket)
	}
	c := Call{Phase: e.phase, TableNs: cost}
	ns := cost * math.Exp(e.noise.Sigma*e.rng.NormFloat64())
	if e.rng.Float64() < e.noise.TailProb {
		ns *= math.Exp(e.noise.TailLog * e.rng.ExpFloat64())
	}
	c.Lost = e.rng.Float64() < e.noise.LostProb
	// The last rank to arrive waits for no one; every other rank's duration has the wait for it on top.
	last, latest, longest := 0, -1.0, 0.0
	for i := range e.ranks {
		late := e.noise.SkewNs * e.rng.ExpFloat64()
		e.ranks[i] = state.Ns(late)
		if late > latest {
			last, latest = i, late
		}
	}
	for i, late := range e.ranks {
		wait := latest - float64(late)
		if i == last {
			wait = 0
		}
		longest = max(longest, wait)
		e.ranks[i] = max(1, state.Ns(ns+wait))
	}
	c.RankNs = e.ranks
	e.nowNs += state.Ns(ns + longest)
	e.seq++
	c.Seen = state.Observation{AtNs: e.nowNs, Seq: e.seq, Action: a, Ran: a, Bytes: 1 << e.bucket.Log2Bytes,
		CounterNs: state.Ns(counterShare * ns), SignalNs: max(1, state.Ns(ns)), SkewNs: state.Ns(longest), FirstRank: int32(last)}
	if e.calls++; e.calls == e.phases[e.phase].Calls {
		e.phase, e.calls = e.phase+1, 0
	}
	return c
}
