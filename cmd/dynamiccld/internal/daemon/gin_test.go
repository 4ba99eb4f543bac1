package daemon

import (
	"testing"

	"dynamiccl/actions"
	"dynamiccl/nccltuner"
)

func TestGINText(t *testing.T) {
	rank := func(rank int, state nccltuner.GINState) nccltuner.RankView {
		return nccltuner.RankView{Rank: rank, GIN: nccltuner.GINView{State: state, Backend: actions.BackendProxy, Contexts: 4, Signals: 256, Counters: 128}}
	}
	for _, c := range []struct {
		states []nccltuner.GINState
		want   string
	}{
		{nil, ""},
		{[]nccltuner.GINState{nccltuner.GinRefused, nccltuner.GinRefused}, ""},
		{[]nccltuner.GINState{nccltuner.GinWanted, nccltuner.GinUninitialised}, ""},
		{[]nccltuner.GINState{nccltuner.GinComplete, nccltuner.GinComplete}, "complete, proxy, 4 contexts, 256 signals and 128 counters each"},
		{[]nccltuner.GINState{nccltuner.GinInFlight, nccltuner.GinComplete}, "active, proxy, 4 contexts, 256 signals and 128 counters each"},
		{[]nccltuner.GINState{nccltuner.GinActive, nccltuner.GinFailed}, "active on rank 0, failed on rank 1"},
	} {
		var ranks []nccltuner.RankView
		for i, s := range c.states {
			ranks = append(ranks, rank(i, s))
		}
		if got := ginText(ranks); got != c.want {
			t.Errorf("%v: %q, want %q", c.states, got, c.want)
		}
	}
}
