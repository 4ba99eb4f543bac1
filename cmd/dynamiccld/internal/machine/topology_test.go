package machine

import (
	"strings"
	"testing"

	"dynamiccl/nccltuner"
	"dynamiccl/state"
)

func TestTopology(t *testing.T) {
	type rank = nccltuner.RankView
	one, other := nccltuner.Process{PID: 7, StartTime: 1}, nccltuner.Process{PID: 8, StartTime: 1}
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
		{"one process on each node", []rank{{Transport: "socket", Process: one}, {Transport: "socket", Process: one}}, "socket", 0},
		{"one process", []rank{{Transport: "nvlink", Process: one}, {Transport: "nvlink", Process: one}}, "nvlink-direct", 0},
		{"one process over PCIe", []rank{{Transport: "pcie", Process: one}, {Transport: "pcie", Process: one}}, "pcie-direct", 0},
		{"two processes", []rank{{Transport: "nvlink", Process: one}, {Transport: "nvlink", Process: one}, {Transport: "nvlink", Process: other}}, "nvlink", 0},
		{"one process that does not know", []rank{{Process: one}, {Process: one}}, "", 0},
	} {
		info := nccltuner.RecordInfo{NRanks: max(2, len(c.ranks)), NNodes: 2}
		if strings.Contains(c.want, "link") || strings.Contains(c.want, "pcie") {
			info.NNodes = 1
		}
		want := state.Topology{Shape: state.Shape{Ranks: info.NRanks, Nodes: info.NNodes, Transport: c.want}, NICs: c.nics}
		view := nccltuner.RecordView{Ranks: c.ranks, HostRanks: info.NRanks}
		if got := Topology(info, &view); got != want {
			t.Errorf("%s: %+v, want %+v", c.name, got, want)
		}
	}
}
