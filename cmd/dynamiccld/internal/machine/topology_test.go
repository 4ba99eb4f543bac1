package machine

import (
	"testing"

	"dynamiccl/nccltuner"
	"dynamiccl/state"
)

func TestTopology(t *testing.T) {
	type rank = nccltuner.RankView
	for _, c := range []struct {
		name  string
		ranks []rank
		want  string
		nics  int
	}{
		{"nobody yet", nil, "", 0},
		{"one has not joined", []rank{{Transport: "socket"}}, "", 0},
		{"all say the same", []rank{{Transport: "socket"}, {Transport: "socket"}}, "socket", 0},
		{"the fewest NICs", []rank{{Transport: "rdma", NICs: 4}, {Transport: "rdma", NICs: 2}, {Transport: "rdma", NICs: 8}}, "rdma", 2},
		{"a rank that does not know its NICs", []rank{{Transport: "rdma", NICs: 4}, {Transport: "rdma"}}, "rdma", 0},
		{"the last one differs", []rank{{Transport: "rdma", NICs: 4}, {Transport: "rdma", NICs: 4}, {Transport: "socket"}}, "", 0},
		{"the first one does not know", []rank{{}, {Transport: "rdma", NICs: 4}}, "", 0},
		{"the last one does not know", []rank{{Transport: "nvlink"}, {}}, "", 0},
		{"NICs without a transport", []rank{{NICs: 4}, {NICs: 4}}, "", 0},
	} {
		info := nccltuner.RecordInfo{NRanks: max(2, len(c.ranks)), NNodes: 2}
		want := state.Topology{Shape: state.Shape{Ranks: info.NRanks, Nodes: 2, Transport: c.want}, NICs: c.nics}
		view := nccltuner.RecordView{Ranks: c.ranks, HostRanks: info.NRanks}
		if got := Topology(info, &view); got != want {
			t.Errorf("%s: %+v, want %+v", c.name, got, want)
		}
	}
}
