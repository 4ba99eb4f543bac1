package agents

import (
	"math"

	"dynamiccl/actions"
)

// known is what every learner here keeps: measurements of this condition, memory of earlier ones, the base.
type known struct {
	*arms
	memory memory
	base   int
	trials []actions.Action // scratch; what Propose gave last
	former int              // what was best before conditions changed
	rivals []rival          // of that
	order  []int            // scratch
	comm   *Peers           // the communicator's; nil: none
}

func newKnown(t Task) known {
	k := known{arms: newArms(t.Set), comm: t.Peers}
	k.memory.seed(k.arms, t.Prior)
	k.arms.began = t.Peers.now()
	t.Peers.join(t.Bucket, k.arms)
	return k
}

func (k *known) shift() {
	k.memory.save(k.arms)
	k.challenge()
	k.arms.reset()
	k.arms.began = k.comm.now()
	k.base = 0
}

// Calls of the default that relative costs need before they mean anything, and trials of each earlier winner. A model
// that knows how doubtful one call of the default is needs no more to look around: two calls fewer are 0.01 to 0.02 of
// the oracle's cost over 64 calls on the recorded tables.
const (
	defaultFirst  = 3
	modelDefaults = 1
	winnerTrials  = 2
	maxWinners    = 3
)

// openingOf is the first batch of a condition, nil when it is over: the default until it is known by that many calls, and
// between them what was best before, so that a condition that comes back costs one short batch, and first of all what may have become
// best instead. What was seen of it already is left out, so that it may also come in parts.
func (k *known) openingOf(maxTrials, first int) []actions.Action {
	k.trials = k.appendRivals(k.trials[:0], k.room(maxTrials))
	if k.arms.samples[0].n >= first {
		if len(k.trials) == 0 {
			return nil
		}
		k.choose()
		return k.trials
	}
	k.order = k.memory.winners(k.order[:0])
	if len(k.order) > maxWinners {
		k.order = k.order[:maxWinners]
	}
	defaults := 0
	again := func() {
		if defaults++; defaults <= first && defaults > k.arms.samples[0].n {
			k.trials = append(k.trials, k.set[0])
		}
	}
	for round := range winnerTrials {
		for _, w := range k.order {
			if k.arms.samples[w].n <= round {
				k.trials = append(k.trials, k.set[w])
			}
			again()
		}
	}
	for defaults < first {
		again()
	}
	k.trials = k.trials[:min(len(k.trials), max(0, maxTrials))]
	return k.trials
}

// Switching the base costs nothing but must not follow noise.
const (
	baseMinSamples = 2
	baseWorth      = 0.01
)

// choose moves the base to the action that is most surely cheap: measured at least twice, least by mean plus error.
func (k *known) choose() {
	sigma := k.arms.sigma()
	bound := func(i int) float64 {
		if k.arms.samples[i].n < baseMinSamples {
			return math.Inf(1)
		}
		return k.arms.samples[i].log() + math.Sqrt(k.arms.variance(i, sigma))
	}
	best := k.base
	least := bound(best) - baseWorth
	for i := range k.set {
		if b := bound(i); b < least {
			best, least = i, b
		}
	}
	k.base = best
}

// room is how many trials a caller has use for: a guard asks for a whole set more, because it turns some down.
func (k *known) room(maxTrials int) int {
	if maxTrials > len(k.set) {
		return maxTrials - len(k.set)
	}
	return maxTrials
}

// pursueMost bounds the trials of a best action that no guard lets into force: twice the window, after which more calls
// do not make it better known. Half as many cost 0.01 of the oracle's cost over 64 calls at 15% noise.
const pursueMost = 2 * window

// pursue reports whether to try the best action once more: while it is not beyond doubt that it is better, no guard lets
// it into force, and a trial of it is evidence at the best price there is.
func (k *known) pursue(i int) bool {
	if i == 0 || k.arms.samples[i].n >= pursueMost {
		return false
	}
	g := DefaultGuardConfig()
	if k.arms.samples[i].n < guardMinChoice || k.arms.samples[0].n < guardMinDefault {
		return true
	}
	sigma := k.arms.sigma()
	gain := k.arms.samples[0].log() - k.arms.samples[i].log()
	return gain-g.Confidence*math.Sqrt(k.arms.variance(0, sigma)+k.arms.variance(i, sigma)) <= g.Margin
}
