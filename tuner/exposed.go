package tuner

import (
	"fmt"
	"slices"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// Reward says what a call is charged.
type Reward uint8

// What a call is charged: what it takes itself, or what it adds to the step that it is part of.
const (
	RewardCall Reward = iota
	RewardExposed
)

var rewardNames = [...]string{"call", "exposed"}

func (r Reward) String() string { return rewardNames[r] }

// Rewards are the names that ParseReward knows.
func Rewards() []string { return rewardNames[:] }

// ParseReward reads a reward's name.
func ParseReward(s string) (Reward, error) {
	i := slices.Index(rewardNames[:], s)
	if i < 0 {
		return 0, fmt.Errorf("reward %q is not known; one of %v", s, rewardNames)
	}
	return Reward(i), nil
}

// exposure finds what calls of a communicator add to their step (docs/design.md, decision 25). The interval from the last
// rank's start of a call to that of the next call holds the compute in between and what of the call compute does not
// hide. Calls at one place of a step have the same compute beside them, so what differs from the interval of the usual
// action at the same place is the action's doing:
//
//	cost = what the usual action is charged + interval - mean interval of the usual action at this place
//
// Where compute waits for every call this is the call's own time; where compute hides it, what it takes away from compute.
type exposure struct {
	rhythm rhythm
	places []place // by place in the step, while the rhythm is known
	known  int     // places that have been compared with at least once
	last   timed   // the latest call, which waits for its successor; bucket nil: there is none that can be charged
}

// timed is a call with its instants.
type timed struct {
	o       state.Observation
	bucket  *bucket
	kind    uint64 // collective and bytes
	startNs int64  // of the last rank, host's clock; 0: not known
	endNs   int64  // of the last rank
	trial   bool   // it ran something else than its bucket's base
	late    bool   // it began where the call before it ended
	behind  bool   // and that one was a trial
}

// kindOf tells calls of a step apart.
func kindOf(s *Sample) uint64 { return s.Bytes<<8 | uint64(s.Bucket.Collective) + 1 }

// place is one call of the step, with what its usual action takes there.
type place struct {
	era      int // of the bucket's guard: measurements are compared within one
	action   actions.Action
	n        int
	firstNs  [placeFirst]float64 // intervals
	ownNs    [placeFirst]float64 // and calls' own times
	meanNs   float64             // of intervals
	anchorNs float64             // what the action is charged at meanNs
	paused   int                 // intervals in a row that did not count
}

const (
	placeFirst  = 3  // intervals before there is something to compare with: their median, which one pause does not move
	placeMemory = 32 // as many as an estimate remembers of an action
	// A host that loads data or writes a checkpoint stands still for many steps' compute. What is beside the call and
	// longer than this many usual intervals is such a pause; as many in a row as placeMoved are a program that changed.
	pauseTimes = 3
	placeMoved = 8
	// Compute can lose no more to a call than all the time that the call takes, so what is charged cannot fall below 0; noise
	// can. Costs are compared by logarithms, and beyond 8 times nobody needs to know how much better a choice is.
	exposedLeast = 1.0 / 8
	// steadyAnchor is how often the usual action must have been charged before a place that is new to it starts from that.
	steadyAnchor = 8
	// idleNs is what lies at least between two calls where a stream waits for more than the call before it.
	idleNs = 10_000
)

// next takes in a call that all ranks have reported and gives the one before it, with what that is charged. ok is false where
// that is not known.
func (x *exposure) next(c timed) (before timed, costNs state.Ns, ok bool) {
	before = x.last
	if x.rhythm.hear(c.o.Seq, c.kind) {
		x.places, x.known = make([]place, x.rhythm.period), 0
	}
	follows := before.o.Seq+1 == c.o.Seq && before.startNs != 0 && c.startNs != 0
	if follows {
		c.late = c.startNs-before.endNs < idleNs
		c.behind = before.trial
		if !before.trial { // the order of trials is none of the step's
			x.rhythm.took(before.o.Seq, float64(c.startNs-before.startNs))
		}
	}
	x.last = c
	at, known := x.rhythm.place(before.o.Seq)
	if before.bucket == nil || !follows || !known || c.startNs <= before.startNs {
		return before, 0, false
	}
	if before.late && before.behind && !c.late {
		return before, 0, false // it made up for what the trial before it cost or gained: that is not its own
	}
	costNs, ok = x.charge(&x.places[at], before, float64(c.startNs-before.startNs))
	return before, costNs, ok
}

// charge compares an interval with the usual one of its place.
func (x *exposure) charge(p *place, c timed, interval float64) (state.Ns, bool) {
	own := float64(c.o.SignalNs)
	usual, era := c.bucket.usual(), c.bucket.guard.Shifts()
	if p.era != era || p.n < placeFirst && p.action != usual {
		*p = place{era: era, action: usual}
	}
	if p.n < placeFirst {
		if c.o.Action != p.action {
			return 0, false
		}
		p.firstNs[p.n], p.ownNs[p.n] = interval, own
		if p.n++; p.n == placeFirst {
			x.known++
			p.meanNs, p.anchorNs = median(p.firstNs), median(p.ownNs)
			if e := c.bucket.guard.Estimate(usual); e.N >= steadyAnchor {
				p.anchorNs = estimateOf(e).MeanNs
			}
		}
		return 0, false
	}
	if interval-own > pauseTimes*p.meanNs {
		if p.paused++; p.paused == placeMoved {
			*p = place{era: era, action: usual}
		}
		return 0, false
	}
	p.paused = 0
	cost := max(p.anchorNs+interval-p.meanNs, exposedLeast*p.anchorNs)
	if c.o.Action == p.action { // after it was charged: an interval is not compared with itself
		p.n = min(p.n+1, placeMemory)
		p.meanNs += max(-p.anchorNs, min(p.anchorNs, interval-p.meanNs)) / float64(p.n)
	}
	return max(1, state.Ns(cost)), true
}

func median(ns [placeFirst]float64) float64 {
	slices.Sort(ns[:])
	return ns[placeFirst/2]
}

// searching says that calls should be watched closely: the step's order, or what calls usually take in it, is not known.
func (x *exposure) searching() bool {
	return x.rhythm.heard < rhythmPatience && (x.rhythm.period == 0 || x.known < len(x.places))
}

// usual is what a bucket's calls run when nothing is tried: what others are compared with in a step.
func (b *bucket) usual() actions.Action {
	if b.entry.Base == b.assumed {
		return b.assumed
	}
	return b.guard.Base()
}
