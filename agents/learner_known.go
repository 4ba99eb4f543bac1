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
	order  []int            // scratch
}

func newKnown(t Task) known {
	k := known{arms: newArms(t.Set)}
	k.memory.seed(k.arms, t.Prior)
	t.Peers.join(t.Bucket, k.arms)
	return k
}

func (k *known) shift() {
	k.memory.save(k.arms)
	k.arms.reset()
	k.base = 0
}

// Calls of the default that relative costs need before they mean anything, and trials of each earlier winner.
const (
	defaultFirst = 3
	winnerTrials = 2
	maxWinners   = 3
)

// opening is the first batch of a condition, nil when it is over: the default until it is known, and between its calls
// what was best before, so that a condition that comes back costs one short batch. What was seen of it already is left
// out, so that it may also come in parts.
func (k *known) opening(maxTrials int) []actions.Action {
	if k.arms.samples[0].n >= defaultFirst {
		return nil
	}
	k.order = k.memory.winners(k.order[:0])
	if len(k.order) > maxWinners {
		k.order = k.order[:maxWinners]
	}
	k.trials = k.trials[:0]
	defaults := 0
	again := func() {
		if defaults++; defaults <= defaultFirst && defaults > k.arms.samples[0].n {
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
	for defaults < defaultFirst {
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
