package train

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"dynamiccl/agents"
	"dynamiccl/tuner/tunersim"
)

// Recipe is all that a run's outcome depends on, beside the tables. Same recipe, tables and machine: same bytes.
type Recipe struct {
	Seed      uint64
	Objective Objective
	Updates   int
	Pretrain  int     // of them, the first on synthetic fabrics alone
	Synthetic float64 // part of the later episodes that stays synthetic
	Rate      float64 // of Adam, after warming up; it falls to a twentieth along a cosine, and again from half when tables come
	Without   agents.Without
}

// DefaultRecipe is what the shipped policy was trained with.
func DefaultRecipe() Recipe {
	return Recipe{Seed: 1, Objective: Imitation, Updates: 3200, Pretrain: 900, Synthetic: 0.2, Rate: 3e-3}
}

// Check reports a field that cannot be.
func (r Recipe) Check() error {
	switch {
	case r.Updates <= 0:
		return fmt.Errorf("recipe: %d updates: must be at least 1", r.Updates)
	case r.Pretrain < 0 || r.Pretrain > r.Updates:
		return fmt.Errorf("recipe: %d of %d updates on synthetic fabrics alone: must be 0 to all", r.Pretrain, r.Updates)
	case !(r.Synthetic >= 0 && r.Synthetic <= 1):
		return fmt.Errorf("recipe: synthetic part %g: must be 0 to 1", r.Synthetic)
	case !(r.Rate > 0 && r.Rate < 1):
		return fmt.Errorf("recipe: rate %g: must be between 0 and 1", r.Rate)
	}
	return r.Objective.check()
}

// unlike says what r has otherwise, in the words of the command's options.
func (r Recipe) unlike(other Recipe) string {
	leftOut := func(r Recipe) string { return "[" + strings.Join(r.Without.Names(), ",") + "]" }
	var said []string
	for _, f := range []struct {
		name        string
		its, others any
	}{
		{"seed", r.Seed, other.Seed}, {"objective", r.Objective, other.Objective}, {"updates", r.Updates, other.Updates}, {"pretrain", r.Pretrain, other.Pretrain},
		{"synthetic", r.Synthetic, other.Synthetic}, {"rate", r.Rate, other.Rate}, {"without", leftOut(r), leftOut(other)},
	} {
		if f.its != f.others {
			said = append(said, fmt.Sprintf("%s %v, not %v", f.name, f.its, f.others))
		}
	}
	return strings.Join(said, "; ")
}

// Batch shape: sequences, actions a decision, tokens read before each decision.
const (
	batchSize    = 64
	batchChoices = 24
)

var batchGrid = []int{1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 17, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60}

// Trainer is one run. Not for use by several goroutines.
type Trainer struct {
	recipe    Recipe
	tables    []*tunersim.Table
	threads   int
	design    agents.Design
	graph     *graph                // nil before the first Step
	shape     *agents.PolicyWeights // names and sizes
	params    [][]float32
	played    [][]float32 // params that the next batch is played with: those before the last update
	adam      *adam
	update    int // done
	pending   func() []sequence
	batches   [2]*inputs
	valid     []validation
	best      [][]float32
	bestScore float64 // +Inf: not validated yet
	curve     []Point
	origin    Origin
}

// Point is one row of the training curve.
type Point struct {
	Update int
	Loss   float64 // mean since the last point
	Norm   float64 // of the gradient, likewise
	Regret float64 // of the validation: oracle calls lost in 64 calls, mean over buckets; NaN: not validated here
}

// New prepares a run; threads play episodes beside the gradient's own.
func New(r Recipe, tables []*tunersim.Table, threads int) (*Trainer, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	if len(tables) == 0 && (r.Pretrain < r.Updates && r.Synthetic < 1) {
		return nil, fmt.Errorf("no tables: give some, or train on synthetic fabrics alone")
	}
	t := &Trainer{recipe: r, tables: tables, threads: max(1, threads), shape: agents.RandomPolicyWeights(rand.New(rand.NewPCG(r.Seed, 1))),
		bestScore: math.Inf(1)}
	var err error
	if t.design, err = agents.NewDesign(agents.DefaultParams()); err != nil {
		return nil, err
	}
	var sizes []int
	for _, p := range t.shape.Params() {
		data := make([]float32, len(p.Data))
		for j, x := range p.Data {
			data[j] = float32(x)
		}
		t.params, sizes = append(t.params, data), append(sizes, len(data))
	}
	t.adam = newAdam(sizes)
	t.played = clone(t.params)
	for i := range t.batches {
		t.batches[i] = newInputs(batchSize, batchChoices, batchGrid)
	}
	t.valid = t.validations()
	return t, nil
}

// build makes the graph, which computes with the slices of params. It takes a second, so it waits for the first Step: a
// checkpoint that a run cannot go on from is refused at once.
func (t *Trainer) build() error {
	g, err := newGraph(t.recipe.Objective, batchSize, batchChoices, batchGrid, tensor.Float32, true)
	if err != nil {
		return err
	}
	for i, p := range t.shape.Params() {
		if err := G.Let(g.params[i], tensor.New(tensor.WithShape(p.Rows, p.Cols), tensor.WithBacking(t.params[i]))); err != nil {
			return err
		}
	}
	t.graph = g
	return nil
}

func clone(params [][]float32) [][]float32 {
	out := make([][]float32, len(params))
	for i, p := range params {
		out[i] = append([]float32(nil), p...)
	}
	return out
}

// weights turns parameters into a policy's.
func (t *Trainer) weights(params [][]float32) *agents.PolicyWeights {
	w := t.shape.Clone()
	for i, p := range w.Params() {
		for j, x := range params[i] {
			p.Data[j] = float64(x)
		}
	}
	return w
}

// Update is how many updates are done; Done says that they are all.
func (t *Trainer) Update() int { return t.update }

// Done reports that the recipe is finished.
func (t *Trainer) Done() bool { return t.update >= t.recipe.Updates }

// Curve is the training curve so far.
func (t *Trainer) Curve() []Point { return t.curve }

// Best gives the weights of the best validation and its score; without any validation, the latest weights.
func (t *Trainer) Best() (*agents.PolicyWeights, float64) {
	if t.best == nil {
		return t.weights(t.params), t.bestScore
	}
	return t.weights(t.best), t.bestScore
}

// Step makes one update.
func (t *Trainer) Step() (loss, norm float64, err error) {
	u := t.update
	if t.pending == nil {
		t.pending = t.collect(t.weights(t.played), u)
	}
	seqs := t.pending()
	t.pending = nil
	now := clone(t.params)
	if u+1 < t.recipe.Updates { // the next batch is played while this update runs, with the weights of before it
		t.pending = t.collect(t.weights(now), u+1)
	}
	if t.graph == nil {
		if err := t.build(); err != nil {
			return 0, 0, err
		}
	}
	in := t.batches[u%2]
	in.fill(t.recipe.Objective, seqs, batchGrid, batchChoices, rand.New(rand.NewPCG(t.recipe.Seed, uint64(u)<<8|0xff)))
	if err := in.let(t.graph); err != nil {
		return 0, 0, err
	}
	if err := t.graph.vm.RunAll(); err != nil {
		return 0, 0, fmt.Errorf("update %d: %w", u, err)
	}
	grads := make([][]float32, len(t.params))
	for i, node := range t.graph.params {
		grad, err := node.Grad()
		if err != nil {
			return 0, 0, fmt.Errorf("update %d: %w", u, err)
		}
		grads[i] = grad.Data().([]float32)
	}
	norm = t.adam.update(t.params, grads, t.recipe.rate(u))
	for _, g := range grads {
		clear(g)
	}
	t.graph.vm.Reset()
	t.played = now
	t.update++
	return float64(t.graph.lossValue.Data().(float32)), norm, nil
}

const (
	warmUpdates = 50
	secondRate  = 0.5  // of Rate, where recorded tables come in
	lastRate    = 0.05 // of a stage's top rate, at its end
)

func (r *Recipe) rate(update int) float64 {
	top, done, all := r.Rate, update, r.Pretrain
	if update >= r.Pretrain {
		done, all = update-r.Pretrain, r.Updates-r.Pretrain
		if r.Pretrain > 0 {
			top *= secondRate
		}
	}
	warm := min(1, float64(done+1)/warmUpdates)
	return top * warm * (lastRate + (1-lastRate)*(1+math.Cos(math.Pi*float64(done)/float64(all)))/2)
}

// source is where the episodes of an update come from.
func (t *Trainer) source(update int) Source {
	if update < t.recipe.Pretrain || len(t.tables) == 0 {
		return Synthetic()
	}
	return Mix(t.recipe.Synthetic, Synthetic(), Recorded(t.tables))
}
