package agents

import (
	"math/rand/v2"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// Learner finds the cheapest action of one bucket. Deterministic: same calls, same random source, same answers.
//
// The caller alternates: Propose, run the trials, Observe every call (trials and calls of the base alike, in any
// number), Propose again. Samples may be missing: a learner must not wait for a trial that is never observed.
type Learner interface {
	// Name is what serve --learner selects.
	Name() string
	// Observe takes in one group call. o.Action is an element of the action set.
	Observe(o state.Observation)
	// Propose gives the action to stay on and at most maxTrials actions to try next, in this order, one call each.
	// No trials means that the learner has settled.
	Propose(maxTrials int) (base actions.Action, trials []actions.Action)
	// Shift says that conditions changed: costs measured so far may no longer hold.
	Shift(d Diagnosis)
}

// Task is the bucket that a learner is made for.
type Task struct {
	Set      []actions.Action // Set[0] is NCCL's default
	Bucket   state.Bucket
	Topology state.Topology
	Prior    map[actions.Action]float64 // earlier estimates of costs in nanoseconds (from the store); nil: none
	Peers    *Peers                     // learners of the same communicator; nil: none
	Rand     *rand.Rand                 // the only source of randomness
	// Horizon is how many calls what is found will be worth, to learners that weigh a trial's price against that; 0: their
	// own number. Where trials cost nobody anything it is large.
	Horizon float64
}

// NewLearner makes the learner of one bucket.
type NewLearner func(Task) Learner
