package agents

import (
	"math/rand/v2"
	"slices"
	"testing"

	"dynamiccl/actions"
)

func newHalvingOf(t testing.TB) *halving {
	t.Helper()
	h := newHalving(Task{Set: fullSet(), Bucket: bucketOf(12), Rand: rand.New(rand.NewPCG(1, 1))}).(*halving)
	h.Observe(seen(h.set[0], 1e5))
	return h
}

// A field fills the batch; half of it goes on, to twice the samples.
func TestHalvingHalves(t *testing.T) {
	h := newHalvingOf(t)
	w := simWorld{additive, 0.01, rand.New(rand.NewPCG(1, 7))}
	_, trials := h.Propose(12)
	first := slices.Clone(h.field)
	if len(first) != halvingMost || len(trials) != 12 {
		t.Fatalf("a field of %d, %d trials", len(first), len(trials))
	}
	for _, a := range slices.Clone(trials) {
		h.Observe(w.call(a))
	}
	h.Propose(12)
	if len(h.field) != len(first)/2 || h.need != 2 {
		t.Fatalf("%d go on to %d samples each", len(h.field), h.need)
	}
	for _, i := range h.field {
		if !slices.Contains(first, i) {
			t.Errorf("%s was not in the race", h.set[i])
		}
		for _, out := range first {
			if !slices.Contains(h.field, out) && h.model.mean[out] < h.model.mean[i] {
				t.Errorf("%s goes on, the cheaper %s does not", h.set[i], h.set[out])
			}
		}
	}
}

// One at a time, fields are small; a trial that a guard refuses again and again does not hold the races up.
func TestHalvingIsNotHeldUp(t *testing.T) {
	h := newHalvingOf(t)
	w := simWorld{additive, 0.01, rand.New(rand.NewPCG(1, 7))}
	_, trials := h.Propose(1)
	if len(h.field) != halvingField || len(trials) != 1 {
		t.Fatalf("a field of %d, trials %v", len(h.field), trials)
	}
	refused := trials[0]
	for range 60 {
		_, trials = h.Propose(1 + len(h.set))
		at := slices.IndexFunc(trials, func(a actions.Action) bool { return a != refused })
		if at < 0 {
			h.Observe(w.call(h.set[0]))
			continue
		}
		h.Observe(w.call(trials[at]))
	}
	if base, _ := h.Propose(1); h.races < 2 || additive(base) > 1.25*1e5/1.6 {
		t.Errorf("after 60 calls %d races are begun, the base is %s", h.races, base)
	}
}

func TestHalvingStartsAnewAfterAShift(t *testing.T) {
	h := newHalvingOf(t)
	drive(h, simWorld{additive, 0.02, rand.New(rand.NewPCG(1, 7))}, 20)
	winner, _ := h.Propose(12)
	if c := additive(winner) / (1e5 / 1.6); c > 1.1 {
		t.Fatalf("base %s costs %.2f of the best", winner, c)
	}
	h.Shift(DiagnosisCongestion)
	_, trials := h.Propose(12)
	if !slices.Contains(trials[:min(3, len(trials))], winner) {
		t.Fatalf("trials %v: the winner %s must come first", trials, winner)
	}
	h.Observe(seen(h.set[0], 3e5))
	if h.Propose(12); h.races != 1 {
		t.Errorf("%d races are begun", h.races)
	}
}
