package machine

import (
	"testing"

	"dynamiccl/nccltuner"
)

func TestStored(t *testing.T) {
	for _, c := range []struct {
		ranks   []nccltuner.RankView
		version int
		want    string
	}{
		{[]nccltuner.RankView{{NCCLVersion: 22809, DeviceLL: true}}, 22809, "m"},
		{[]nccltuner.RankView{{NCCLVersion: 23007}, {NCCLVersion: 23007}}, 23007, "m"},
		{[]nccltuner.RankView{{NCCLVersion: 23007, DeviceLL: true}, {NCCLVersion: 23007, DeviceLL: true}}, 23007, "m, LL on device kernels"},
		{[]nccltuner.RankView{{NCCLVersion: 23007}, {NCCLVersion: 23007, DeviceLL: true}}, 23007, "m"},
		{[]nccltuner.RankView{{NCCLVersion: 23007, DeviceLL: true}, {NCCLVersion: 23203}}, 0, "m"},
		{nil, 0, "m"},
	} {
		if got := Stored("m", c.ranks); got != c.want || NCCLVersion(c.ranks) != c.version {
			t.Errorf("%+v: %q, version %d", c.ranks, got, NCCLVersion(c.ranks))
		}
	}
}
