package daemon

import (
	"fmt"
	"slices"
	"strings"

	"dynamiccl/nccltuner"
)

// ginText says in words what came of NCCL's GIN on a communicator: what was granted where every rank runs kernels on it, else
// how far which ranks have come. "": no rank took part in making it.
func ginText(ranks []nccltuner.RankView) string {
	if !slices.ContainsFunc(ranks, func(r nccltuner.RankView) bool { return r.GIN.State.Begun() }) {
		return ""
	}
	if !slices.ContainsFunc(ranks, func(r nccltuner.RankView) bool { return !r.GIN.State.Usable() }) {
		g := ranks[0].GIN
		return fmt.Sprintf("%s, %s, %d contexts, %d signals and %d counters each", commonState(ranks), g.Backend, g.Contexts, g.Signals, g.Counters)
	}
	var parts []string
	for _, r := range ranks {
		parts = append(parts, fmt.Sprintf("%s on rank %d", r.GIN.State, r.Rank))
	}
	return strings.Join(parts, ", ")
}

// commonState is that of all ranks, or active: one may have a call in flight where another's is complete.
func commonState(ranks []nccltuner.RankView) nccltuner.GINState {
	for _, r := range ranks {
		if r.GIN.State != ranks[0].GIN.State {
			return nccltuner.GinActive
		}
	}
	return ranks[0].GIN.State
}
