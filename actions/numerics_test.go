package actions

import "testing"

func TestReductionOrderMatters(t *testing.T) {
	want := map[Collective]bool{Broadcast: false, AllGather: false, Reduce: true, ReduceScatter: true, AllReduce: true, AllToAll: false, AllToAllRegistered: false, 99: true}
	for c, w := range want {
		if got := ReductionOrderMatters(c); got != w {
			t.Errorf("%s: %v, want %v", c, got, w)
		}
	}
}
