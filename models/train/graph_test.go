package train

import (
	"math/rand/v2"
	"testing"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"dynamiccl/agents"
)

func BenchmarkStep(b *testing.B) {
	grid := []int{0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48}
	gr, err := newGraph(64, 24, grid, tensor.Float32, true)
	if err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	fill := func(n *G.Node) {
		d := make([]float32, n.Shape().TotalSize())
		for i := range d {
			d[i] = float32(rng.NormFloat64()) * 0.3
		}
		if err := G.Let(n, tensor.New(tensor.WithShape(n.Shape()...), tensor.WithBacking(d))); err != nil {
			b.Fatal(err)
		}
	}
	for i, p := range agents.RandomPolicyWeights(rng).Params() {
		d := make([]float32, len(p.Data))
		for j, x := range p.Data {
			d[j] = float32(x)
		}
		G.Let(gr.params[i], tensor.New(tensor.WithShape(p.Rows, p.Cols), tensor.WithBacking(d)))
	}
	for _, t := range gr.tokens {
		fill(t)
	}
	for _, n := range []*G.Node{gr.context, gr.features, gr.relative, gr.target, gr.weight} {
		fill(n)
	}
	G.Let(gr.precision, tensor.New(tensor.WithShape(gr.precision.Shape()...), tensor.WithBacking(make([]float32, gr.precision.Shape().TotalSize()))))
	b.ResetTimer()
	for b.Loop() {
		if err := gr.vm.RunAll(); err != nil {
			b.Fatal(err)
		}
		gr.vm.Reset()
	}
	b.Log(gr.lossValue)
}
