package train

import (
	"math"
	"math/rand/v2"
	"testing"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"dynamiccl/agents"
)

// testWeights are random weights whose heads say something: those of an untrained policy hide what goes wrong in them.
func testWeights(rng *rand.Rand) *agents.PolicyWeights {
	w := agents.RandomPolicyWeights(rng)
	for _, p := range w.Params() {
		for i := range p.Data {
			switch {
			case p.Rows == 1:
				p.Data[i] += 0.2 * rng.NormFloat64()
			case p.Cols == agents.ActionWidth:
				p.Data[i] *= 3
			}
		}
	}
	return w
}

// letWeights hands weights to a graph in double precision and gives the slices that it computes with.
func letWeights(t testing.TB, g *graph, w *agents.PolicyWeights) [][]float64 {
	t.Helper()
	var slices [][]float64
	for i, p := range w.Params() {
		data := append([]float64(nil), p.Data...)
		slices = append(slices, data)
		if err := G.Let(g.params[i], tensor.New(tensor.WithShape(p.Rows, p.Cols), tensor.WithBacking(data))); err != nil {
			t.Fatal(err)
		}
	}
	return slices
}

// letNode hands double precision data to a node.
func letNode(t testing.TB, n *G.Node, data []float64) {
	t.Helper()
	if err := G.Let(n, tensor.New(tensor.WithShape(n.Shape()...), tensor.WithBacking(data))); err != nil {
		t.Fatal(err)
	}
}

func normal(rng *rand.Rand, n int, scale float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = scale * rng.NormFloat64()
	}
	return out
}

// letRandom fills all inputs of a double precision graph.
func letRandom(t testing.TB, g *graph, rng *rand.Rand) {
	t.Helper()
	for _, n := range append(append([]*G.Node(nil), g.tokens...), g.context, g.features, g.relative, g.target) {
		letNode(t, n, normal(rng, n.Shape().TotalSize(), 0.3))
	}
	positive := func(scale float64) []float64 {
		xs := normal(rng, g.weight.Shape().TotalSize(), scale)
		for i, x := range xs {
			xs[i] = math.Abs(x)
		}
		return xs
	}
	letNode(t, g.precision, positive(20))
	letNode(t, g.weight, positive(0.1))
	for i, n := range g.actor {
		if n == nil {
			continue
		}
		xs := normal(rng, n.Shape().TotalSize(), 0.05)
		for j, x := range xs {
			if i == actorRest { // a sum of exponentials
				xs[j] = 1 + math.Abs(x)
			}
		}
		letNode(t, n, xs)
	}
}

// letDouble hands a filled batch to a double precision graph and gives the slices that it computes with.
func letDouble(t testing.TB, g *graph, in *inputs) (tokens [][]float64, rest map[*G.Node][]float64) {
	t.Helper()
	rest = map[*G.Node][]float64{}
	double := func(n *G.Node, xs []float32) []float64 {
		out := make([]float64, len(xs))
		for i, x := range xs {
			out[i] = float64(x)
		}
		letNode(t, n, out)
		return out
	}
	for i, n := range g.tokens {
		tokens = append(tokens, double(n, in.tokens[i]))
	}
	for n, xs := range map[*G.Node][]float32{g.context: in.context, g.features: in.features, g.relative: in.relative,
		g.precision: in.precision, g.target: in.target, g.weight: in.weight} {
		rest[n] = double(n, xs)
	}
	for i, n := range g.actor {
		if n != nil {
			double(n, in.actor[i])
		}
	}
	return tokens, rest
}

func runGraph(t testing.TB, g *graph) float64 {
	t.Helper()
	if err := g.vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	g.vm.Reset()
	return g.lossValue.Data().(float64)
}

// TestGradients compares gradients with central differences, for some parameters of every tensor.
func TestGradients(t *testing.T) {
	for _, o := range []Objective{Imitation, ActorCritic} { // the graph of QLearning is that of Imitation
		t.Run(string(o), func(t *testing.T) { compareGradients(t, o) })
	}
}

func compareGradients(t *testing.T, o Objective) {
	rng := rand.New(rand.NewPCG(3, 1))
	g, err := newGraph(o, 2, 3, []int{0, 1, 3}, tensor.Float64, true)
	if err != nil {
		t.Fatal(err)
	}
	w := testWeights(rng)
	params := letWeights(t, g, w)
	letRandom(t, g, rng)
	runGraph(t, g)
	var grads [][]float64
	for _, node := range g.params {
		grad, err := node.Grad()
		if err != nil {
			t.Fatal(err)
		}
		grads = append(grads, append([]float64(nil), grad.Data().([]float64)...))
	}
	const (
		each  = 5
		width = 1e-5
	)
	for i, p := range w.Params() {
		most := 0.0
		for range each {
			j := rng.IntN(len(p.Data))
			at := params[i][j]
			params[i][j] = at + width
			up := runGraph(t, g)
			params[i][j] = at - width
			down := runGraph(t, g)
			params[i][j] = at
			want, got := (up-down)/(2*width), grads[i][j]
			most = max(most, math.Abs(got))
			if math.Abs(want-got) > 1e-6*(1+math.Abs(want)) {
				t.Errorf("%s[%d]: gradient %g, difference quotient %g", p.Name, j, got, want)
			}
		}
		if most == 0 {
			t.Errorf("%s: no gradient reaches it", p.Name)
		}
	}
}

// played gives sequences of the policy on synthetic fabrics.
func played(t testing.TB, w *agents.PolicyWeights, opt agents.PolicyOptions, grid []int, count int, rng *rand.Rand) []sequence {
	t.Helper()
	design, err := agents.NewDesign(agents.DefaultParams())
	if err != nil {
		t.Fatal(err)
	}
	var seqs []sequence
	for len(seqs) < count {
		seqs = append(seqs, runEpisode(w, opt, Synthetic(), grid, design, rng)...)
	}
	return seqs[:count]
}

// TestForwardPassIsTheInference runs recorded calls through the graph that is trained and compares what it says with what
// package agents said in these calls: with all inputs, and without the LSTM's state.
func TestForwardPassIsTheInference(t *testing.T) {
	for name, without := range map[string]agents.Without{"all inputs": {}, "no memory": {Memory: true}} {
		t.Run(name, func(t *testing.T) { compareForward(t, without) })
	}
}

func compareForward(t *testing.T, without agents.Without) {
	rng := rand.New(rand.NewPCG(5, 1))
	grid := []int{1, 2, 3, 5, 8, 13, 21, 34}
	w := testWeights(rng)
	opt := agents.DefaultPolicyOptions()
	opt.Without = without
	seqs := played(t, w, opt, grid, 20, rng)
	choices := 0
	for _, s := range seqs {
		choices = max(choices, len(s.truth[0])-1)
	}
	g, err := newGraph(Imitation, len(seqs), choices, grid, tensor.Float64, false)
	if err != nil {
		t.Fatal(err)
	}
	letWeights(t, g, w)
	single := newInputs(len(seqs), choices, grid) // says which decision and action comes where, and how much it counts
	single.fill(Imitation, seqs, grid, choices, rng)
	tokens, rest := letDouble(t, g, single)
	for i, tokens := range tokens {
		for b, s := range seqs {
			if (i+1)*agents.TokenWidth <= len(s.tokens) {
				copy(tokens[b*agents.TokenWidth:(b+1)*agents.TokenWidth], s.tokens[i*agents.TokenWidth:])
			}
		}
	}
	context, features, relative := rest[g.context], rest[g.features], rest[g.relative]
	precision, target, weight := rest[g.precision], rest[g.target], rest[g.weight]
	// The same again without rounding. Sets fit into choices, so action a is choice a-1.
	each := func(visit func(n int, d agents.Decision, truth []float64)) (decisions int) {
		for b, s := range seqs {
			for _, d := range s.decisions {
				for at, after := range grid {
					if after == d.After {
						visit(at*len(seqs)+b, d, s.truth[d.Phase])
						decisions++
					}
				}
			}
		}
		return decisions
	}
	near := func(what string, a, b []float64) {
		for i := range b {
			if !(math.Abs(a[i]-b[i]) <= 1e-6*(1+math.Abs(b[i]))) {
				t.Fatalf("%s %d: the batch has %g, the run %g", what, i, a[i], b[i])
			}
		}
	}
	set := func(what string, dst, src []float64) {
		near(what, dst, src)
		copy(dst, src)
	}
	decisions := each(func(n int, d agents.Decision, truth []float64) {
		set("context", context[n*agents.ContextWidth:], d.Context)
		set("features", features[n*choices*agents.ActionWidth:], d.Features[agents.ActionWidth:])
		set("relative", relative[n*choices:], d.Relative[1:])
		set("precision", precision[n*choices:], d.Precision[1:])
		set("target", target[n*choices:], truth[1:])
	})
	if decisions < 40 {
		t.Fatalf("only %d decisions to compare", decisions)
	}
	got := runGraph(t, g)
	mean, logv, trust := g.meanValue.Data().([]float64), g.logvValue.Data().([]float64), g.trustValue.Data().([]float64)
	loss, most := 0.0, 0.0
	each(func(n int, d agents.Decision, truth []float64) {
		for a := 1; a < len(d.Mean); a++ {
			j := n*choices + a - 1
			for _, c := range []struct {
				what      string
				got, want float64
			}{{"mean", mean[j], d.Mean[a]}, {"log variance", logv[j], d.LogVar[a]}, {"trust", trust[j], d.Trust[a]}} {
				most = max(most, math.Abs(c.got-c.want))
				if !(math.Abs(c.got-c.want) <= 1e-6) {
					t.Fatalf("decision %d, action %d: %s %.9f in the graph, %.9f in the inference", n, a, c.what, c.got, c.want)
				}
			}
			loss += weight[j] * likelihood(d, a, truth[a])
		}
	})
	if !(math.Abs(got-loss) <= 1e-6*math.Abs(loss)) {
		t.Errorf("loss %.9f in the graph, %.9f by Bayes' rule from what the inference said", got, loss)
	}
	t.Logf("%d decisions, largest difference %.1e", decisions, most)
}

// likelihood is twice the negative log likelihood of a true cost under the posterior of one action: the network's belief
// and the action's own measurements by Bayes' rule, and tails of Student's t.
func likelihood(d agents.Decision, a int, truth float64) float64 {
	prior, own := math.Exp(-d.LogVar[a]), d.Precision[a]*d.Trust[a]
	posterior := (prior*d.Mean[a] + own*d.Relative[a]) / (prior + own)
	spread := 1/(prior+own) + tableNoise*tableNoise
	miss := truth - posterior
	return math.Log(spread) + (tailFreedom+1)*math.Log(1+miss*miss/spread/tailFreedom)
}

// stepper hands weights to a graph in single precision; step updates the slices that it computes with, and gives the loss.
func stepper(t *testing.T, g *graph, w *agents.PolicyWeights) (params [][]float32, step func(rate float64) float64) {
	t.Helper()
	var sizes []int
	for i, p := range w.Params() {
		data := make([]float32, len(p.Data))
		for j, x := range p.Data {
			data[j] = float32(x)
		}
		params, sizes = append(params, data), append(sizes, len(data))
		if err := G.Let(g.params[i], tensor.New(tensor.WithShape(p.Rows, p.Cols), tensor.WithBacking(data))); err != nil {
			t.Fatal(err)
		}
	}
	optimiser := newAdam(sizes)
	return params, func(rate float64) float64 {
		if err := g.vm.RunAll(); err != nil {
			t.Fatal(err)
		}
		loss := float64(g.lossValue.Data().(float32))
		var grads [][]float32
		for _, node := range g.params {
			grad, err := node.Grad()
			if err != nil {
				t.Fatal(err)
			}
			grads = append(grads, grad.Data().([]float32))
		}
		optimiser.update(params, grads, rate)
		for _, grad := range grads {
			clear(grad)
		}
		g.vm.Reset()
		return loss
	}
}

// TestLossDecreases trains on one batch that stays the same. Its weights have no biases in their heads: with those that
// training starts from, the heads say what the Gaussian process thinks, which leaves 30 updates little to learn.
func TestLossDecreases(t *testing.T) {
	const choices, updates = 12, 30
	grid := []int{1, 2, 3, 5, 8, 12}
	rng := rand.New(rand.NewPCG(7, 1))
	w := agents.RandomPolicyWeights(rng)
	seqs := played(t, w, agents.DefaultPolicyOptions(), grid, 16, rng)
	clear(w.MeanB)
	clear(w.WidthB)
	clear(w.TrustB)
	g, err := newGraph(Imitation, len(seqs), choices, grid, tensor.Float32, true)
	if err != nil {
		t.Fatal(err)
	}
	_, step := stepper(t, g, w)
	in := newInputs(len(seqs), choices, grid)
	in.fill(Imitation, seqs, grid, choices, rng)
	if err := in.let(g); err != nil {
		t.Fatal(err)
	}
	var losses []float64
	for range updates {
		losses = append(losses, step(3e-3))
	}
	first, last := losses[0], losses[updates-1]
	t.Logf("loss %g at first, %g last", first, last)
	if !(last < first-0.5) { // half a unit of twice the log likelihood: e^(1/4) nearer to every truth
		t.Errorf("loss %g at first, %g after %d updates: %v", first, last, updates, losses)
	}
	for i := 5; i < updates; i++ {
		if !(losses[i] < losses[i-5]) {
			t.Errorf("update %d: loss %g, five updates before it %g", i, losses[i], losses[i-5])
		}
	}
}

// BenchmarkStep is one update's gradient: what training waits for.
func BenchmarkStep(b *testing.B) {
	gr, err := newGraph(Imitation, batchSize, batchChoices, batchGrid, tensor.Float32, true)
	if err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	fill := func(n *G.Node, scale float64) {
		d := make([]float32, n.Shape().TotalSize())
		for i := range d {
			d[i] = float32(rng.NormFloat64() * scale)
		}
		if err := G.Let(n, tensor.New(tensor.WithShape(n.Shape()...), tensor.WithBacking(d))); err != nil {
			b.Fatal(err)
		}
	}
	for _, n := range gr.params {
		fill(n, 0.1)
	}
	for _, n := range append(append([]*G.Node(nil), gr.tokens...), gr.context, gr.features, gr.relative, gr.target, gr.weight) {
		fill(n, 0.3)
	}
	fill(gr.precision, 0)
	for b.Loop() {
		if err := gr.vm.RunAll(); err != nil {
			b.Fatal(err)
		}
		gr.vm.Reset()
	}
}
