package actions

import (
	"testing"

	"pgregory.net/rapid"
)

func TestReductionOrderMatters(t *testing.T) {
	want := map[Collective]bool{Broadcast: false, AllGather: false, Reduce: true, ReduceScatter: true, AllReduce: true, AllToAll: false, AllToAllRegistered: false, 99: true}
	for c, w := range want {
		if got := ReductionOrderMatters(c); got != w {
			t.Errorf("%s: %v, want %v", c, got, w)
		}
	}
}

func TestNumerics(t *testing.T) {
	for _, c := range []struct {
		action     string
		collective Collective
		severally  bool
		want       Numerics
	}{
		{"default", AllReduce, false, NCCLDefault},
		{"Ring/LL128/24", AllReduce, false, "nccl-ring"},
		{"NVLSTree/Simple", AllReduceRegistered, true, "nccl-nvlstree"},
		{"symmetric/AGxLL_R", AllReduceRegistered, false, NCCLSymmetric},
		{"lsa/oneshot/4", AllReduce, false, RankOrder},
		{"lsa/direct/64", ReduceScatterRegistered, false, RankOrder},
		{"gin/gdaki/4", AllReduce, true, RankOrder}, // flat whatever it is called
		{"gin/gdaki/4", ReduceScatter, false, RankOrder},
		{"gin/gdaki/4", ReduceScatter, true, NodeOrder},
		{"gin/gdaki/4/flat", ReduceScatter, true, RankOrder},
		{"gin/proxy/4", AllToAll, true, NoSums},
		{"Ring/LL/1", Broadcast, false, NoSums},
		{"default", AllGatherRegistered, false, NoSums},
		{"Tree/LL", Reduce, false, "nccl-tree"},
	} {
		a, err := Parse(c.action)
		if err != nil {
			t.Fatal(err)
		}
		if got := a.Numerics(c.collective, c.severally); got != c.want {
			t.Errorf("%s of %s, several a node %v: %s, want %s", a, c.collective, c.severally, got, c.want)
		}
	}
}

// Every class has words; what has the same bits whatever runs is ours alone, whatever its CTAs; and the class of a sum says who adds up.
func TestNumericsOfAnyAction(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, c, severally := anyAction().Draw(t, "action"), Collective(rapid.IntRange(0, NumCollectives-1).Draw(t, "collective")), rapid.Bool().Draw(t, "several a node")
		n := a.Numerics(c, severally)
		if (n == NoSums) == ReductionOrderMatters(c) || n.SameBits() != (a.Ours() || n == NoSums) || n.Means() == "" {
			t.Fatalf("%s of %s: %s, the same bits %v", a, c, n, n.SameBits())
		}
		if other := a.Kind().Numerics(c, severally); other != n {
			t.Fatalf("%s of %s is %s, and %s with other numbers", a, c, n, other)
		}
	})
}
