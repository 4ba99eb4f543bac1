package machine

import (
	"dynamiccl/nccltuner"
	"dynamiccl/state"
)

// Topology is what choices of a communicator depend on, of what all of its ranks on this host say alike. Ranks that differ about what
// connects them do not know it; of NICs the fewest count.
func Topology(info nccltuner.RecordInfo, view *nccltuner.RecordView) state.Topology {
	ranks := view.Ranks
	t := state.Topology{Shape: state.Shape{Ranks: info.NRanks, Nodes: info.NNodes}}
	if len(ranks) == 0 || len(ranks) < view.HostRanks {
		return t
	}
	t.Transport, t.NICs = ranks[0].Transport, ranks[0].NICs
	for _, r := range ranks[1:] {
		if r.Transport != t.Transport {
			t.Transport, t.NICs = "", 0
			break
		}
		t.NICs = min(t.NICs, r.NICs)
	}
	if t.Transport == "" {
		t.NICs = 0
	}
	return t
}
