package train

import (
	"cmp"
	"math"
	"slices"

	"dynamiccl/agents"
)

// How an actor chooses. Widths reach from 0.05 to 1, so that half of one lets training say anything from "never again" to
// "at once" of an action that looks 50% worse. Noise of calls is 0.02 to 0.2: what differs by 0.05 is not worth telling
// apart, and what looks 0.3 worse is drawn once in 400.
const (
	optimism    = 0.5
	temperature = 0.05
)

// What it learns from. The gradient of a log probability is 1/temperature, that of the critic's likelihood about the
// posterior's 1/sd: a quarter makes them alike, so that neither drowns the other in the layers that they share.
const (
	returnCalls   = 16
	discount      = 0.95
	actorWeight   = 0.25
	entropyWeight = 0.01 // in it
)

// Inputs of the actor's part of the loss; z is (hope - peak)/temperature, hope what an action's choice goes by.
const (
	actorPeak  = iota // [N, choices]: greatest hope of the decision, against overflow; far where there is no action
	actorTaken        // [N, choices]: advantage, where the action was taken
	actorGain         // [N, 1]: advantage
	actorRest         // [N, 1]: sum of e^z over actions that the batch does not hold, the default among them
	actorRestZ        // [N, 1]: sum of z e^z
	actorBonus        // [N, 1]: weight of the entropy
	actorInputs
)

// actorFar makes a probability 0.
const actorFar = 1000

func actorColumns(input, choices int) int {
	if input <= actorTaken {
		return choices
	}
	return 1
}

// posterior is what the heads and own measurements make of an action, as in the graph.
func posterior(d agents.Decision, a int) (mean, sd float64) {
	if a == 0 {
		return 0, 0
	}
	prior, own := math.Exp(-d.LogVar[a]), d.Precision[a]*d.Trust[a]
	return (prior*d.Mean[a] + own*d.Relative[a]) / (prior + own), 1 / math.Sqrt(prior+own)
}

func hope(d agents.Decision, a int) float64 {
	mean, sd := posterior(d, a)
	return optimism*sd - mean
}

// likeliest chooses the actions of one decision that are learned from: what was taken, then what was likeliest to be. The
// others keep their probabilities, as numbers: only that they could become likelier is not learned here, and of what was
// not taken that would be little.
func likeliest(dst []int, d agents.Decision, choices int) []int {
	hopes := make([]float64, len(d.Mean))
	for a := range hopes {
		hopes[a] = hope(d, a)
		if a == d.Taken {
			hopes[a] = math.Inf(1)
		}
		if a > 0 {
			dst = append(dst, a)
		}
	}
	slices.SortStableFunc(dst, func(a, b int) int { return cmp.Compare(hopes[b], hopes[a]) })
	return dst[:min(len(dst), choices)]
}

// act is one action that was drawn: where it is in the batch (taken -1: the default, which the batch does not hold), and
// how much cheaper it turned out than was expected of the decision.
type act struct {
	n, taken  int
	advantage float64
}

// clearActor leaves nothing of the last batch.
func (in *inputs) clearActor() {
	for i, xs := range in.actor {
		x := float32(0)
		switch i {
		case actorPeak:
			x = actorFar
		case actorRest:
			x = 1
		}
		for j := range xs {
			xs[j] = x
		}
	}
}

// act writes one decision. Its return is what a policy on a real machine would see, the mean gain over the default in the
// calls that followed; the expected one is what its probabilities and the critic made of the next call.
func (in *inputs) act(n, choices int, order []int, d agents.Decision, costs []float64) act {
	peak := 0.0
	for a := range d.Mean {
		peak = max(peak, hope(d, a))
	}
	value, total, rest, restZ := 0.0, 0.0, 0.0, 0.0
	held := make([]bool, len(d.Mean))
	done := act{n: n, taken: -1}
	for k, a := range order {
		held[a] = true
		in.actor[actorPeak][n*choices+k] = float32(peak)
		if a == d.Taken {
			done.taken = n*choices + k
		}
	}
	for a := range d.Mean {
		mean, _ := posterior(d, a)
		z := (hope(d, a) - peak) / temperature
		e := math.Exp(z)
		value -= e * mean
		total += e
		if !held[a] {
			rest += e
			restZ += z * e
		}
	}
	in.actor[actorRest][n], in.actor[actorRestZ][n] = float32(rest), float32(restZ)
	gained, weights, weight := 0.0, 0.0, 1.0
	for _, c := range costs[d.Call:min(len(costs), d.Call+returnCalls)] {
		gained -= weight * min(maxTruth, max(minTruth, c)) // one delayed call must not outweigh the batch
		weights += weight
		weight *= discount
	}
	done.advantage = gained/weights - value/total
	return done
}

// reward writes advantages, standardised over the batch: what later calls gain over this one, by learning, is an
// advantage of no action, and machines differ in how much there is to gain.
func (in *inputs) reward(acts []act) {
	if len(acts) == 0 {
		return
	}
	count, mean, square := float64(len(acts)), 0.0, 0.0
	for _, a := range acts {
		mean += a.advantage / count
	}
	for _, a := range acts {
		square += (a.advantage - mean) * (a.advantage - mean) / count
	}
	for _, a := range acts {
		x := float32(actorWeight / count * (a.advantage - mean) / math.Sqrt(max(1e-12, square)))
		in.actor[actorGain][a.n] = x
		if a.taken >= 0 {
			in.actor[actorTaken][a.taken] = x
		}
		in.actor[actorBonus][a.n] = float32(actorWeight * entropyWeight / count)
	}
}
