package agents

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"dynamiccl/actions"
)

func warm(b testing.TB, name string) (*Guard, simWorld) {
	g := makeGuard(b, name, fullSet(), bucketOf(12), nil, 1)
	w := simWorld{additive, 0.05, rand.New(rand.NewPCG(1, 7))}
	drive(g, w, 6)
	return g, w
}

func TestObserveDoesNotAllocate(t *testing.T) {
	for _, name := range withPolicy() {
		g, w := warm(t, name)
		o, d := w.call(g.Base()), w.call(actions.Default)
		if n := testing.AllocsPerRun(1000, func() { g.Observe(o); g.Observe(d) }); n != 0 {
			t.Errorf("%s: %.1f allocations an observation", name, n)
		}
		g.Propose(12)
		if n := testing.AllocsPerRun(100, func() { g.Propose(12) }); n != 0 {
			t.Errorf("%s: %.1f allocations a proposal", name, n)
		}
	}
}

func BenchmarkObserve(b *testing.B) {
	for _, name := range withPolicy() {
		b.Run(name, func(b *testing.B) {
			g, w := warm(b, name)
			o := w.call(g.Base())
			b.ReportAllocs()
			for b.Loop() {
				g.Observe(o)
			}
		})
	}
}

func BenchmarkPropose(b *testing.B) {
	for _, name := range withPolicy() {
		for _, batches := range []int{1, 60} { // exploring, settled
			b.Run(fmt.Sprintf("%s/batches=%d", name, batches), func(b *testing.B) {
				g := makeGuard(b, name, fullSet(), bucketOf(12), nil, 1)
				drive(g, simWorld{additive, 0.05, rand.New(rand.NewPCG(1, 7))}, batches)
				b.ReportAllocs()
				for b.Loop() {
					g.Propose(12)
				}
			})
		}
	}
}
