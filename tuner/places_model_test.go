package tuner

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// machine is a model of GPUs on which kernels wait for each other, as docs/design.md (decision 2) has it. Each stream has its kernels
// one after the other on every GPU, in the same order; streams come on in any order, another one on each GPU. A kernel's blocks
// take places in the order of their numbers, and keep them until their likes have, or had, one on all GPUs.
type machine struct {
	gpus, places, kernels int   // kernels: of each stream
	ctas                  []int // of a stream's kernels
	at                    [][]seat
}

// seat is a stream on a GPU.
type seat struct {
	kernel, placed int // the one that runs; its blocks that have had a place
	done           blocks
}

// blocks are those of a kernel that are over.
type blocks [2]uint64

func (b *blocks) add(i int)      { b[i/64] |= 1 << (i % 64) }
func (b *blocks) has(i int) bool { return b[i/64]>>(i%64)&1 != 0 }
func (b *blocks) count() int     { return bits.OnesCount64(b[0]) + bits.OnesCount64(b[1]) }

func newMachine(gpus, places, kernels int, ctas []int) *machine {
	m := &machine{gpus: gpus, places: places, kernels: kernels, ctas: ctas}
	for range gpus {
		m.at = append(m.at, make([]seat, len(ctas)))
	}
	return m
}

func (m *machine) free(g int) int {
	free := m.places
	for i := range m.at[g] {
		free -= m.at[g][i].placed - m.at[g][i].done.count()
	}
	return free
}

// place gives the next block of a stream's kernel a place; false: it has none.
func (m *machine) place(g, stream int) bool {
	s := &m.at[g][stream]
	if s.kernel == m.kernels || s.placed == m.ctas[stream] || m.free(g) == 0 {
		return false
	}
	s.placed++
	return true
}

// end ends a block whose likes have had a place; false: one has not.
func (m *machine) end(g, stream, block int) bool {
	s := &m.at[g][stream]
	if s.kernel == m.kernels || block >= s.placed || s.done.has(block) {
		return false
	}
	for peer := range m.gpus {
		if p := m.at[peer][stream]; p.kernel < s.kernel || p.kernel == s.kernel && p.placed <= block {
			return false
		}
	}
	if s.done.add(block); s.done.count() == m.ctas[stream] {
		*s = seat{kernel: s.kernel + 1}
	}
	return true
}

func (m *machine) over() bool {
	for _, streams := range m.at {
		for _, s := range streams {
			if s.kernel < m.kernels {
				return false
			}
		}
	}
	return true
}

// run does what can be done, streams in each GPU's order of arrival, until nothing can. True: all is over.
func (m *machine) run(order [][]int) bool {
	for moved := true; moved; {
		moved = false
		for g := range m.gpus {
			for _, stream := range order[g] {
				for m.place(g, stream) {
					moved = true
				}
			}
		}
		for g := range m.gpus {
			for stream, n := range m.ctas {
				for block := range n {
					moved = m.end(g, stream, block) || moved
				}
			}
		}
	}
	return m.over()
}

// everyWay tries all orders of all that can happen, and gives the number of states in which nothing can and not all is over.
func (m *machine) everyWay(seen map[string]bool) (stuck int) {
	key := fmt.Sprint(m.at)
	if seen[key] {
		return 0
	}
	seen[key] = true
	before := make([][]seat, m.gpus)
	for g := range before {
		before[g] = append([]seat(nil), m.at[g]...)
	}
	moved := false
	then := func(did bool) {
		if did {
			moved = true
			stuck += m.everyWay(seen)
			for g := range before {
				copy(m.at[g], before[g])
			}
		}
	}
	for g := range m.gpus {
		for stream, n := range m.ctas {
			then(m.place(g, stream))
			for block := range n {
				then(m.end(g, stream, block))
			}
		}
	}
	if !moved && !m.over() {
		stuck++
	}
	return stuck
}

func alike(n, ctas int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = ctas
	}
	return all
}

// Small machines in every order: where all kernels but one leave a place, nothing gets stuck; where they do not, something does, if
// there is a GPU for each.
func TestPlacesInEveryOrder(t *testing.T) {
	for _, c := range []struct{ gpus, places, streams, ctas, kernels int }{
		{2, 2, 2, 1, 2}, {2, 3, 2, 2, 2}, {2, 4, 2, 3, 1}, {3, 2, 2, 1, 2}, {2, 3, 3, 1, 2}, {3, 3, 3, 1, 1},
		{2, 1, 2, 1, 2}, {2, 2, 2, 2, 2}, {2, 3, 2, 3, 1}, {3, 2, 3, 1, 1}, {3, 1, 3, 1, 1},
	} {
		stuck := newMachine(c.gpus, c.places, c.kernels, alike(c.streams, c.ctas)).everyWay(map[string]bool{})
		if safe := (c.streams-1)*c.ctas < c.places; safe != (stuck == 0) {
			t.Errorf("%+v: stuck in %d states", c, stuck)
		}
	}
}

// shifted has stream g last on GPU g: there the others come first.
func shifted(gpus, streams int) [][]int {
	order := make([][]int, gpus)
	for g := range order {
		for i := range streams {
			order[g] = append(order[g], (g+1+i)%streams)
		}
	}
	return order
}

// As many kernels as the rule has for a number of CTAs never get stuck, in the order that is the worst for them, and one more does.
func TestRuleOfPlacesIsTight(t *testing.T) {
	for n := 1; n <= 40; n++ {
		most := int(mostCTAs(n, 0))
		if !newMachine(n, usualMultiprocessors-clusterReserve, 2, alike(n, most)).run(shifted(n, n)) {
			t.Errorf("%d kernels of %d CTAs are stuck", n, most)
		}
		if most == 64 {
			continue
		}
		more := most // the next larger choice
		for _, choice := range ctaChoices {
			if int(choice) > most {
				more = int(choice)
				break
			}
		}
		if newMachine(n, usualMultiprocessors-clusterReserve, 1, alike(n, more)).run(shifted(n, n)) {
			t.Errorf("%d kernels of %d CTAs are not stuck: the rule could allow more", n, more)
		}
	}
	// What was seen: two communicators, a call of each in a graph and one outside, 128 CTAs and 132 multiprocessors, two GPUs.
	if newMachine(2, 132, 1, alike(4, 128)).run([][]int{{0, 1, 2, 3}, {3, 2, 1, 0}}) {
		t.Error("four kernels of 128 CTAs on 132 multiprocessors are not stuck")
	}
}

// Kernels of any sizes that the rule allows, in any order, on any number of multiprocessors that there is.
func TestKernelsUnderTheRuleAlwaysEnd(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(r, "kernels")
		has := rapid.IntRange(56, 148).Draw(r, "multiprocessors")
		ctas := rapid.SliceOfN(rapid.IntRange(1, int(mostCTAs(n, has))), n, n).Draw(r, "ctas")
		m := newMachine(rapid.IntRange(2, 8).Draw(r, "gpus"), has-clusterReserve, rapid.IntRange(1, 3).Draw(r, "each"), ctas)
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 1))
		for range 1 << 14 { // anything at random, then all that is left
			g, stream := rng.IntN(m.gpus), rng.IntN(n)
			if rng.IntN(2) == 0 {
				m.place(g, stream)
			} else {
				m.end(g, stream, rng.IntN(ctas[stream]))
			}
		}
		order := make([][]int, m.gpus)
		for g := range order {
			order[g] = rng.Perm(n)
		}
		if !m.run(order) {
			r.Fatalf("stuck: %+v", m)
		}
	})
}
