package train

import (
	"math/rand/v2"
	"sync"

	"dynamiccl/agents"
)

// streams of random numbers that a batch's episodes are drawn from: not the threads, so that their number does not matter.
const streams = 8

// collect starts playing the episodes of one update; the function it gives waits for them.
func (t *Trainer) collect(w *agents.PolicyWeights, update int) func() []sequence {
	parts := make([][]sequence, streams)
	source := t.source(update)
	var wait sync.WaitGroup
	turns := make(chan struct{}, t.threads)
	for k := range streams {
		wait.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			rng := rand.New(rand.NewPCG(t.recipe.Seed, uint64(update)<<8|uint64(k)))
			opt := agents.DefaultPolicyOptions()
			opt.Without, opt.Actor = t.recipe.Without, t.recipe.Objective.Actor()
			if opt.Actor.Optimism > 0 {
				opt.Actor.Temperature = temperature
			}
			const want = batchSize / streams
			for len(parts[k]) < want {
				parts[k] = append(parts[k], runEpisode(w, opt, source, batchGrid, t.design, rng)...)
			}
			parts[k] = parts[k][:want]
		})
	}
	return func() []sequence {
		wait.Wait()
		var all []sequence
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
}
