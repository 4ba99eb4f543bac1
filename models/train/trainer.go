package train

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"dynamiccl/agents"
)

// Config is one training run. Same Config, same machine: same bytes.
type Config struct {
	Seed    uint64
	Updates int
	Rate    float64 // of Adam, at the start; it falls to a twentieth along a cosine
	Without agents.Without
	Source  Source
	Init    *agents.PolicyWeights // to start from; nil: random
	Workers int
	// Report is called after every update.
	Report func(Progress)
}

// Progress is the state of a run after an update.
type Progress struct {
	Update, Updates int
	Loss, Norm      float64
	Weights         func() *agents.PolicyWeights
}

// Batch shape: sequences, actions a decision, tokens read before each decision.
const (
	batchSize    = 64
	batchChoices = 24
)

var batchGrid = []int{1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 17, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60}

// Run trains until the updates are done or ctx ends, and gives the last weights.
func Run(ctx context.Context, cfg Config) (*agents.PolicyWeights, error) {
	weights := cfg.Init
	if weights == nil {
		weights = agents.RandomPolicyWeights(rand.New(rand.NewPCG(cfg.Seed, 1)))
	}
	g, err := newGraph(batchSize, batchChoices, batchGrid, tensor.Float32, true)
	if err != nil {
		return nil, err
	}
	design, err := agents.NewDesign(agents.DefaultParams())
	if err != nil {
		return nil, err
	}
	params, sizes := make([][]float32, len(g.params)), make([]int, len(g.params))
	for i, p := range weights.Params() {
		params[i], sizes[i] = make([]float32, len(p.Data)), len(p.Data)
		for j, x := range p.Data {
			params[i][j] = float32(x)
		}
		if err := G.Let(g.params[i], tensor.New(tensor.WithShape(p.Rows, p.Cols), tensor.WithBacking(params[i]))); err != nil {
			return nil, err
		}
	}
	snapshot := func() *agents.PolicyWeights {
		w := weights.Clone()
		for i, p := range w.Params() {
			for j, x := range params[i] {
				p.Data[j] = float64(x)
			}
		}
		return w
	}
	opt := newAdam(sizes)
	next := cfg.collect(snapshot(), 0, design)
	batches := [2]*inputs{newInputs(batchSize, batchChoices, batchGrid), newInputs(batchSize, batchChoices, batchGrid)}
	grads := make([][]float32, len(params))
	for u := range cfg.Updates {
		if ctx.Err() != nil {
			break
		}
		seqs := next()
		if u+1 < cfg.Updates { // the next batch is played with the weights of before this update, while it runs
			next = cfg.collect(snapshot(), u+1, design)
		}
		in := batches[u%2]
		in.fill(seqs, batchGrid, batchChoices, rand.New(rand.NewPCG(cfg.Seed, uint64(u)<<8|0xff)))
		if err := in.let(g); err != nil {
			return nil, err
		}
		if err := g.vm.RunAll(); err != nil {
			return nil, fmt.Errorf("update %d: %w", u, err)
		}
		for i, node := range g.params {
			grad, err := node.Grad()
			if err != nil {
				return nil, fmt.Errorf("update %d: %w", u, err)
			}
			grads[i] = grad.Data().([]float32)
		}
		norm := opt.update(params, grads, cfg.rate(u))
		for i := range grads {
			clear(grads[i])
		}
		g.vm.Reset()
		if cfg.Report != nil {
			cfg.Report(Progress{Update: u + 1, Updates: cfg.Updates, Loss: float64(g.lossValue.Data().(float32)), Norm: norm, Weights: snapshot})
		}
	}
	return snapshot(), nil
}

const warmUpdates = 50

func (c *Config) rate(update int) float64 {
	warm := min(1, float64(update+1)/warmUpdates)
	return c.Rate * warm * (0.05 + 0.95*(1+math.Cos(math.Pi*float64(update)/float64(c.Updates)))/2)
}

// collect starts playing the episodes of one update; the function it gives waits for them.
func (c *Config) collect(w *agents.PolicyWeights, update int, design agents.Design) func() []sequence {
	workers := max(1, c.Workers)
	parts := make([][]sequence, workers)
	var wait sync.WaitGroup
	for k := range workers {
		wait.Go(func() {
			// Its own stream, so that the number of threads does not matter to what one worker plays.
			rng := rand.New(rand.NewPCG(c.Seed, uint64(update)<<8|uint64(k)))
			opt := agents.DefaultPolicyOptions()
			opt.Without = c.Without
			want := (batchSize + workers - 1 - k) / workers
			for len(parts[k]) < want {
				parts[k] = append(parts[k], runEpisode(w, opt, c.Source, batchGrid, design, rng)...)
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
