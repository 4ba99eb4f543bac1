package machine

import (
	"testing"

	"dynamiccl/nccltuner"
)

func TestStored(t *testing.T) {
	in := func(pid uint32, shares bool) nccltuner.RankView {
		return nccltuner.RankView{Process: nccltuner.Process{PID: pid}, NCCLVersion: 23007, DeviceLL: true, SharesLL: shares}
	}
	old := nccltuner.RankView{Process: nccltuner.Process{PID: 7}, NCCLVersion: 22809, DeviceLL: true}
	for _, c := range []struct {
		ranks        []nccltuner.RankView
		nodes        int
		version      int
		want, beside string
	}{
		{[]nccltuner.RankView{{NCCLVersion: 22809, DeviceLL: true}}, 1, 22809, "m", ""},
		{[]nccltuner.RankView{{NCCLVersion: 23007}, {NCCLVersion: 23007}}, 1, 23007, "m", ""},
		{[]nccltuner.RankView{{NCCLVersion: 23007, DeviceLL: true}, {NCCLVersion: 23007, DeviceLL: true}}, 1, 23007, "m, LL on device kernels", ""},
		{[]nccltuner.RankView{{NCCLVersion: 23007}, {NCCLVersion: 23007, DeviceLL: true}}, 1, 23007, "m", ""},
		{[]nccltuner.RankView{{NCCLVersion: 23007, DeviceLL: true}, {NCCLVersion: 23203}}, 1, 0, "m", ""},
		{nil, 1, 0, "m", ""},
		{[]nccltuner.RankView{in(1, false), in(2, false)}, 1, 23007, "m, LL on device kernels", ""},
		{[]nccltuner.RankView{in(1, false), in(1, false)}, 1, 23007, "m, several GPUs a process", "m, LL on device kernels"},
		{[]nccltuner.RankView{in(1, false), in(2, false), in(2, false)}, 1, 23007, "m, several GPUs a process", "m, LL on device kernels"},
		{[]nccltuner.RankView{in(1, true), in(1, false)}, 1, 23007, "m, several GPUs a process", "m, LL on device kernels"},
		{[]nccltuner.RankView{in(1, true), in(1, true)}, 1, 23007, "m, LL on device kernels", ""},
		{[]nccltuner.RankView{in(1, false), in(1, false)}, 2, 23007, "m, LL on device kernels", ""}, // between nodes there is no such kernel
		{[]nccltuner.RankView{old, old}, 1, 22809, "m", ""},
	} {
		if got := Stored("m", c.ranks, c.nodes); got != c.want || NCCLVersion(c.ranks) != c.version || Beside("m", c.ranks, c.nodes) != c.beside {
			t.Errorf("%+v: %q, beside %q, version %d", c.ranks, got, Beside("m", c.ranks, c.nodes), NCCLVersion(c.ranks))
		}
	}
}
