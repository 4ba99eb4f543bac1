package machine

import (
	"slices"

	"dynamiccl/nccltuner"
)

// DeviceVersion is the first NCCL that reads NCCL_SYM_NOWIN_ENABLE and then may run a device kernel where LL is asked for.
const DeviceVersion = 22907

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

// Stored is what choices of a communicator on the machine are stored under. Where NCCL runs device kernels for LL the same
// choice is another thing, and must not be taken for what it is without them. Ranks that differ run none (tuner.c).
func Stored(name string, ranks []nccltuner.RankView) string {
	without := slices.ContainsFunc(ranks, func(r nccltuner.RankView) bool { return !r.DeviceLL })
	if !without && NCCLVersion(ranks) >= DeviceVersion {
		return name + ", LL on device kernels"
	}
	return name
}
