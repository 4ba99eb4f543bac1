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
		bytes      uint64
		severally  bool
		want       Numerics
	}{
		{"default", AllReduce, 1024, false, NCCLDefault},
		{"Ring/LL128/24", AllReduce, 1024, false, "nccl-ring"},
		{"NVLSTree/Simple", AllReduceRegistered, 1024, true, "nccl-nvlstree"},
		{"symmetric/AGxLL_R", AllReduceRegistered, 1024, false, NCCLSymmetric},
		{"lsa/oneshot/4", AllReduce, 1024, false, RankOrder},
		{"lsa/direct/64", ReduceScatterRegistered, 1024, false, RankOrder},
		{"gin/gdaki/4", AllReduce, GINSlotBytes - 1, true, RankOrder}, // flat whatever it is called
		{"gin/gdaki/4", AllReduce, GINSlotBytes, true, NodeOrder},
		{"gin/gdaki/4", AllReduce, GINSlotBytes, false, RankOrder},
		{"gin/gdaki/4/flat", AllReduce, GINSlotBytes, true, RankOrder},
		{"gin/gdaki/4", ReduceScatter, 1024, false, RankOrder},
		{"gin/gdaki/4", ReduceScatter, 1024, true, NodeOrder},
		{"gin/gdaki/4/flat", ReduceScatter, 1024, true, RankOrder},
		{"gin/proxy/4", AllToAll, 1024, true, NoSums},
		{"Ring/LL/1", Broadcast, 1024, false, NoSums},
		{"default", AllGatherRegistered, 1024, false, NoSums},
		{"Tree/LL", Reduce, 1024, false, "nccl-tree"},
	} {
		a, err := Parse(c.action)
		if err != nil {
			t.Fatal(err)
		}
		if got := a.Numerics(c.collective, c.bytes, c.severally); got != c.want {
			t.Errorf("%s of %s of %d bytes, several a node %v: %s, want %s", a, c.collective, c.bytes, c.severally, got, c.want)
		}
	}
}

// Every class has words; what has the same bits whatever runs is ours alone, whatever its CTAs; and the class of a sum says who adds up.
func TestNumericsOfAnyAction(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, c, severally := anyAction().Draw(t, "action"), Collective(rapid.IntRange(0, NumCollectives-1).Draw(t, "collective")), rapid.Bool().Draw(t, "several a node")
		bytes := rapid.Uint64().Draw(t, "bytes")
		n := a.Numerics(c, bytes, severally)
		if (n == NoSums) == ReductionOrderMatters(c) || n.SameBits() != (a.Ours() || n == NoSums) || n.Means() == "" {
			t.Fatalf("%s of %s: %s, the same bits %v", a, c, n, n.SameBits())
		}
		if other := a.Kind().Numerics(c, bytes, severally); other != n {
			t.Fatalf("%s of %s is %s, and %s with other numbers", a, c, n, other)
		}
	})
}
