package nccltuner

import (
	"cmp"
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

// GINView is NCCL's GIN on a rank by one backend, and what NCCL granted.
type GINView struct {
	State             GINState
	Backend           actions.Backend // BackendNone: nothing was granted yet
	Contexts          int
	Depth             int // entries of the shortest queue to a peer; 0: not told
	Signals, Counters int // of each context
}

// ginViews are of each backend, in the order in which the ranks make them; uninitialised: NCCL has no such backend, or it was not begun.
func ginViews(rank *ABIRank) (views [2]GINView) {
	for i, word := range [2]*uint32{&rank.Gin, &rank.GinSecond} {
		views[i] = ginView(rank, atomic.LoadUint32(word))
	}
	return views
}

func ginView(rank *ABIRank, word uint32) GINView {
	v := GINView{State: GINState(word), Backend: actions.Backend(word >> 8), Contexts: int(word >> 16 & 255), Depth: depthOf(word >> 24)}
	if v.Backend >= actions.NumBackends {
		v.Backend = actions.BackendNone
	}
	if v.Backend != actions.BackendNone {
		v.Signals, v.Counters = int(atomic.LoadUint32(&rank.GinSignals)), int(atomic.LoadUint32(&rank.GinCounters))
	}
	return v
}

// depthOf reads what abi.h has for it.
func depthOf(code uint32) int {
	if code == 0 || code > 31 {
		return 0
	}
	return 1 << (code - 1)
}

// GINText says in words what came of NCCL's GIN on a communicator, by each backend: what was granted where every rank runs kernels
// on it, else how far which ranks have come. "": no rank took part in making it.
func GINText(ranks []RankView) string {
	var texts []string
	for i := range 2 {
		views := make([]GINView, len(ranks))
		for j, r := range ranks {
			views[j] = r.GIN[i]
		}
		if text := ginText(ranks, views); text != "" {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "; ")
}

func ginText(ranks []RankView, views []GINView) string {
	if !slices.ContainsFunc(views, func(v GINView) bool { return v.State.Begun() }) {
		return ""
	}
	if !slices.ContainsFunc(views, func(v GINView) bool { return !v.State.Usable() }) {
		g := views[0]
		return fmt.Sprintf("%s, %s, %d contexts, %s, %d signals and %d counters each", commonState(views), g.Backend, g.Contexts, queuesText(views), g.Signals, g.Counters)
	}
	var parts []string
	for i, v := range views {
		parts = append(parts, fmt.Sprintf("%s on rank %d", v.State, ranks[i].Rank))
	}
	return strings.Join(parts, ", ")
}

// queuesText is of the rank whose queues are shortest.
func queuesText(views []GINView) string {
	depth := slices.MinFunc(views, func(a, b GINView) int { return cmp.Compare(a.Depth, b.Depth) }).Depth
	if depth == 0 {
		return "depth of queues not told by NCCL"
	}
	return fmt.Sprintf("queues of %d", depth)
}

// commonState is that of all ranks, or active: one may have a call in flight where another's is complete.
func commonState(views []GINView) GINState {
	for _, v := range views {
		if v.State != views[0].State {
			return GinActive
		}
	}
	return views[0].State
}
