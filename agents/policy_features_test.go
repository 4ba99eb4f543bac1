package agents

import (
	"testing"

	"dynamiccl/actions"
)

// Of the path, one shot is what it was before there were kernels; the others say which they are in the slots of protocols,
// and differ in nothing else.
func TestFeaturesOfKernels(t *testing.T) {
	encode := func(s string) (f [staticWidth]float64) {
		a, err := actions.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		encodeAction(f[:], a, 32)
		return f
	}
	one := encode("lsa/oneshot/16")
	c := octaves(16)
	o := octaves(32) - c
	if want := [staticWidth]float64{0: 1, 3: 1, 21: c, 22: c * c, 34: o, 35: o * o, 42: c}; one != want {
		t.Errorf("oneshot: %v, want %v", one, want)
	}
	for s, slot := range map[string]int{"lsa/twoshot/16": 10, "lsa/bulk/16": 11} {
		want := one
		want[slot] = 1
		if got := encode(s); got != want {
			t.Errorf("%s: %v, want %v", s, got, want)
		}
	}
	if ll128, simple := encode("Ring/LL128/16"), encode("Ring/Simple/16"); ll128[10] != 1 || simple[11] != 1 {
		t.Error("these are not the slots of protocols")
	}
}

// CTAs are no channels: kernels in a set leave the features of all else as they are.
func TestKernelsMoveNoChannels(t *testing.T) {
	with := makeLearner(t, NameLSTM, kernelSet(), bucketOf(20), nil, 1).(*lstm)
	without := makeLearner(t, NameLSTM, fullSet(), bucketOf(20), nil, 1).(*lstm)
	for i := range fullSet() {
		if [staticWidth]float64(with.row(i)[:staticWidth]) != [staticWidth]float64(without.row(i)[:staticWidth]) {
			t.Errorf("%s has other features beside kernels", with.set[i])
		}
	}
}
