package train

import (
	"math"
	"math/rand/v2"
	"sync"

	"dynamiccl/agents"
	"dynamiccl/tuner/tunersim"
)

// validation is one machine whose calls are the same at every validation.
type validation struct {
	tables []*tunersim.Table
	seed   uint64
}

// validation is as wide as this, and far from the seeds of training.
const (
	validSynthetic = 40
	validEach      = 2 // times that a recorded table is played
	validSeed      = 1 << 40
)

// validations are drawn once: synthetic machines that training never draws, and the recorded tables as they are, since
// training sees them jittered only. Held-out tables are not among them.
func (t *Trainer) validations() []validation {
	var vs []validation
	for i := range uint64(validSynthetic) {
		rng := rand.New(rand.NewPCG(validSeed, i))
		vs = append(vs, validation{Synthetic()(rng), i})
	}
	for i, table := range t.tables {
		for k := range uint64(validEach) {
			vs = append(vs, validation{[]*tunersim.Table{table}, uint64(i)<<8 | k})
		}
	}
	return vs
}

// Validate plays the validation machines with the present weights and keeps these when they are the best so far. It gives
// the regret: oracle calls lost in the first 64 calls, mean over buckets. The mean over machines is geometric (of one
// more than the regret): a few machines on which everything costs dozens of calls must not choose the weights.
func (t *Trainer) Validate(loss, norm float64) float64 {
	w := t.weights(t.params)
	scores := make([]float64, len(t.valid))
	var wait sync.WaitGroup
	turns := make(chan struct{}, t.threads)
	for i, v := range t.valid {
		wait.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			rng := rand.New(rand.NewPCG(validSeed+1, v.seed))
			opt := agents.DefaultPolicyOptions()
			opt.Without, opt.Actor = t.recipe.Without, t.recipe.Objective.Actor()
			scores[i] = regret(w, opt, v.tables, t.design, rng)
		})
	}
	wait.Wait()
	sum := 0.0
	for _, s := range scores {
		sum += math.Log1p(max(0, s))
	}
	score := math.Expm1(sum / float64(len(scores)))
	if score < t.bestScore {
		t.bestScore, t.best = score, clone(t.params)
	}
	t.curve = append(t.curve, Point{t.update, loss, norm, score})
	return score
}

// regretCalls is how many calls of a bucket regret is counted over, from the beginning and from a change of conditions.
const regretCalls = 64

// validSigma is the noise of validation.
const validSigma = 0.08

// regret plays one machine.
func regret(w *agents.PolicyWeights, opt agents.PolicyOptions, tables []*tunersim.Table, design agents.Design, rng *rand.Rand) float64 {
	buckets := tunersim.CommonBuckets(tables)
	rng.Shuffle(len(buckets), func(i, j int) { buckets[i], buckets[j] = buckets[j], buckets[i] })
	buckets = buckets[:min(len(buckets), maxBuckets)]
	noise := tunersim.SplitNoise(tunersim.Noise{Sigma: validSigma, TailProb: 0.01, TailLog: meanTailLog})
	peers := agents.NewPeers()
	var worlds []*world
	for _, b := range buckets {
		worlds = append(worlds, newWorld(tables, b, tables[0].Topology(), peers, w, opt, nil, design, noise, rng))
	}
	lost := 0.0
	for phase := range tables {
		for range regretCalls {
			for _, x := range worlds {
				x.phase = phase
				best := math.Inf(1)
				for _, c := range x.costs[phase] {
					best = min(best, c)
				}
				lost += x.costs[phase][x.call(1, 0, rng)]/best - 1
			}
		}
	}
	return lost / float64(len(worlds)*len(tables))
}
