package machine

import (
	"slices"

	"dynamiccl/nccltuner"
)

// DeviceVersion is the first NCCL that runs a device kernel where LL is asked for: of those that read NCCL_SYM_NOWIN_ENABLE, from 2.29.2 on,
// the first whose kernels are right at any address (plugin/everywhere.h).
const DeviceVersion = 23003

const (
	onDevice = ", LL on device kernels"
	shared   = ", several GPUs a process"
)

// NCCLVersion is that of the ranks, 0 when they differ or do not know.
func NCCLVersion(ranks []nccltuner.RankView) int {
	version := 0
	for i, r := range ranks {
		if i > 0 && r.NCCLVersion != version {
			return 0
		}
		version = r.NCCLVersion
	}
	return version
}

// Kind says what LL is on a communicator's ranks.
type Kind int

const (
	Classic  Kind = iota // NCCL's classic kernel
	OnDevice             // its device kernel, where it has one
	Shared               // the classic one, for ranks share a process; with a process each it would be the device kernel
)

// KindOf goes by what all ranks of the record say; ranks that differ run no device kernel. Ranks of one node that share a process have none
// either (plugin/everywhere.h); between nodes there is none anyway, so there LL is the same in any process.
func KindOf(ranks []nccltuner.RankView, nodes int) Kind {
	without := slices.ContainsFunc(ranks, func(r nccltuner.RankView) bool { return !r.DeviceLL })
	switch {
	case without || NCCLVersion(ranks) < DeviceVersion:
		return Classic
	case nodes > 1 || !shareProcess(ranks) || !slices.ContainsFunc(ranks, func(r nccltuner.RankView) bool { return !r.SharesLL }):
		return OnDevice
	}
	return Shared
}

func shareProcess(ranks []nccltuner.RankView) bool {
	for i, r := range ranks {
		if r.Process.PID != 0 && slices.ContainsFunc(ranks[:i], func(o nccltuner.RankView) bool { return o.Process.PID == r.Process.PID }) {
			return true
		}
	}
	return false
}

// Stored is what choices of a communicator on the machine are stored under. Where NCCL runs device kernels for LL the same
// choice is another thing, and must not be taken for what it is without them. In a store of before, what several GPUs of one process
// learned stands under the kind that has them.
func Stored(name string, ranks []nccltuner.RankView, nodes int) string {
	switch KindOf(ranks, nodes) {
	case OnDevice:
		return name + onDevice
	case Shared:
		return name + shared
	}
	return name
}

// Beside is under what else there is something for such a communicator: all but what LL has a part in holds for a process a GPU and
// for several alike, and `calibrate` has a process for each. "": nothing.
func Beside(name string, ranks []nccltuner.RankView, nodes int) string {
	if KindOf(ranks, nodes) == Shared {
		return name + onDevice
	}
	return ""
}
