package tunersim

import (
	"dynamiccl/actions"
	"dynamiccl/state"
)

// DefaultSplit is the share of a call's signal time (data visible) after which its counter (send buffer free) is done,
// for recorded tables, which hold the signal only. A sender is done one hop before the last receiver can see the data,
// so the share is 1 - 1/(hops+1) with the hops of the algorithm, at least a half. Large calls are bound by bandwidth,
// where the last chunk's hop is a small part of the whole: the missing part halves from 1 MiB to 16 MiB and on.
func DefaultSplit(t state.Topology, b state.Bucket, a actions.Action) float64 {
	missing := 1 / (float64(hops(max(t.Ranks, 2), max(t.Nodes, 1), b.Collective, a)) + 1)
	for size := 24; size <= int(b.Log2Bytes); size += 4 {
		missing /= 2
	}
	return 1 - min(missing, 0.5)
}
