package nccltuner

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"dynamiccl/actions"
)

// GINState is how far NCCL's GIN has come on a rank: DYN_GIN_* of abi.h.
type GINState uint8

var ginStateNames = [NumGinStates]string{"uninitialised", "refused", "wanted", "initialising", "granted", "active", "in flight", "complete", "destroyed", "failed"}

func (s GINState) String() string {
	if int(s) < len(ginStateNames) {
		return ginStateNames[s]
	}
	return "unknown"
}

// Usable says that the rank runs kernels on it.
func (s GINState) Usable() bool { return s == GinActive || s == GinInFlight || s == GinComplete }

// Begun says that all ranks took part in making it.
func (s GINState) Begun() bool { return s >= GinInitialising && s < NumGinStates }

// GINView is NCCL's GIN on a rank, and what NCCL granted.
type GINView struct {
	State             GINState
	Backend           actions.Backend // BackendNone: nothing was granted yet
	Contexts          int
	Signals, Counters int // of each context
}

func ginView(rank *ABIRank) GINView {
	word := atomic.LoadUint32(&rank.Gin)
	v := GINView{State: GINState(word), Backend: actions.Backend(word >> 8), Contexts: int(word >> 16 & 255)}
	if v.Backend >= actions.NumBackends {
		v.Backend = actions.BackendNone
	}
	if v.Backend != actions.BackendNone {
		v.Signals, v.Counters = int(atomic.LoadUint32(&rank.GinSignals)), int(atomic.LoadUint32(&rank.GinCounters))
	}
	return v
}

// GINText says in words what came of NCCL's GIN on a communicator: what was granted where every rank runs kernels on it, else
// how far which ranks have come. "": no rank took part in making it.
func GINText(ranks []RankView) string {
	if !slices.ContainsFunc(ranks, func(r RankView) bool { return r.GIN.State.Begun() }) {
		return ""
	}
	if !slices.ContainsFunc(ranks, func(r RankView) bool { return !r.GIN.State.Usable() }) {
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
func commonState(ranks []RankView) GINState {
	for _, r := range ranks {
		if r.GIN.State != ranks[0].GIN.State {
			return GinActive
		}
	}
	return ranks[0].GIN.State
}
