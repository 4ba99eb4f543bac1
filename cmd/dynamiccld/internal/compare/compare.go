package compare

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"dynamiccl/tuner/tunersim"
)

// Config is one evaluation.
type Config struct {
	tunersim.Comparison
	Scenarios  []*tunersim.Scenario
	Contenders []tunersim.Contender
	Seeds      int // 1 to Seeds are played
	Workers    int
	Progress   func(done, all int) // nil: nobody looks; called by one goroutine at a time
}

// Result is one learner in one scenario with one seed.
type Result struct {
	All   tunersim.Score
	Each  []tunersim.Score // by bucket
	Curve []float64        // mean regret of a bucket after each call, in calls of the best action
}

// Run plays everything. Results are ordered by scenario, name of the learner and seed, so that neither workers nor the
// order of contenders show.
func Run(ctx context.Context, cfg Config) ([]Result, error) {
	contenders := slices.Clone(cfg.Contenders)
	slices.SortFunc(contenders, func(a, b tunersim.Contender) int { return cmp.Compare(a.Name, b.Name) })
	perScenario := len(contenders) * cfg.Seeds
	results := make([]Result, len(cfg.Scenarios)*perScenario)

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var done int
	var mu sync.Mutex // over done and Progress
	var wg sync.WaitGroup
	for range max(1, min(cfg.Workers, len(results))) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(results) || ctx.Err() != nil {
					return
				}
				l := contenders[i%perScenario/cfg.Seeds]
				played, err := cfg.Play(ctx, cfg.Scenarios[i/perScenario], l, uint64(i%cfg.Seeds)+1)
				if err != nil {
					cancel(fmt.Errorf("playing %s: %w", l.Name, err))
					return
				}
				all, each := played.Scores()
				results[i] = Result{all, each, played.Curve()}
				mu.Lock()
				done++
				if cfg.Progress != nil {
					cfg.Progress(done, len(results))
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if done < len(results) {
		return nil, fmt.Errorf("stopped after %d of %d runs: %w", done, len(results), context.Cause(ctx))
	}
	return results, nil
}
