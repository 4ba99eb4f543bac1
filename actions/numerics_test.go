package actions

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestReductionOrderMatters(t *testing.T) {
	want := map[Collective]bool{Broadcast: false, AllGather: false, Reduce: true, ReduceScatter: true, AllReduce: true, 9: true}
	for c, w := range want {
		if got := ReductionOrderMatters(c); got != w {
			t.Errorf("%s: %v, want %v", c, got, w)
		}
	}
}

func TestMovingDataIsExactUnderEveryAction(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := anyAction().Draw(t, "action")
		for _, c := range []Collective{Broadcast, AllGather} {
			if got := ClassOf(c, a); got != ClassExact {
				t.Fatalf("%s %v: class %q", c, a, got)
			}
		}
	})
}

// Algorithm, protocol and channels each move an element to another place in the order of sums.
func TestClassesOfSumsDiffer(t *testing.T) {
	base := Action{Path: PathCollective, Algorithm: Ring, Protocol: LL128, Channels: 24}
	others := []Action{Default, {Path: PathSymmetric}, {Path: PathCollective, Algorithm: Tree, Protocol: LL128, Channels: 24}, {Path: PathCollective, Algorithm: Ring, Protocol: LL, Channels: 24},
		{Path: PathCollective, Algorithm: Ring, Protocol: LL128, Channels: 23}, {Path: PathCollective, Algorithm: Ring, Protocol: LL128, Channels: 0}}
	for _, c := range []Collective{Reduce, ReduceScatter, AllReduce} {
		if ClassOf(c, base) == ClassExact {
			t.Errorf("%s: class %q", c, ClassOf(c, base))
		}
		for _, o := range others {
			if ClassOf(c, base) == ClassOf(c, o) {
				t.Errorf("%s: %v and %v share class %q", c, base, o, ClassOf(c, o))
			}
		}
	}
}

// Our kernels add up in one order, whichever it is and with any number of CTAs and threads; it is nobody else's.
func TestOurKernelsAreOneClass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := anyAction().Draw(t, "any")
		ours := Action{Path: PathLSA, Kernel: Kernel(rapid.IntRange(0, NumKernels-1).Draw(t, "kernel")), Channels: rapid.Uint8Max(MaxCTAs).Draw(t, "CTAs")}
		for _, c := range []Collective{Reduce, ReduceScatter, AllReduce} {
			if got := ClassOf(c, ours); got != "lsa" || (ClassOf(c, a) == got) != (a.Path == PathLSA) {
				t.Fatalf("%s: %v is of class %q, %v of %q", c, ours, got, a, ClassOf(c, a))
			}
		}
	})
}

// Fields that a path gives no meaning to must not split a class.
func TestClassIgnoresMeaninglessFields(t *testing.T) {
	if ClassOf(AllReduce, Action{Path: PathDefault, Channels: 3}) != ClassOf(AllReduce, Default) {
		t.Error("the default has two classes")
	}
	if ClassOf(AllReduce, Action{Path: PathSymmetric, Protocol: Simple}) != ClassOf(AllReduce, Action{Path: PathSymmetric}) {
		t.Error("symmetric has two classes")
	}
}

func TestInClass(t *testing.T) {
	set := []Action{Default, {Path: PathCollective, Algorithm: Ring, Protocol: LL, Channels: 0}, {Path: PathCollective, Algorithm: Tree, Protocol: LL, Channels: 0}}
	if got := InClass(AllReduce, set, ClassOf(AllReduce, Default)); !slices.Equal(got, set[:1]) {
		t.Errorf("AllReduce in the default's class: %v", got)
	}
	ours := []Action{Default, {Path: PathLSA, Kernel: OneShot, Channels: 4}, {Path: PathCollective, Algorithm: Ring}, {Path: PathLSA, Kernel: Bulk, Channels: 64}}
	if got, want := InClass(AllReduce, ours, ClassOf(AllReduce, ours[1])), []Action{ours[1], ours[3]}; !slices.Equal(got, want) {
		t.Errorf("AllReduce in our kernels' class: %v", got)
	}
	if got := InClass(AllGather, set, ClassOf(AllGather, Default)); !slices.Equal(got, set) {
		t.Errorf("AllGather in the default's class: %v", got)
	}
}
