package nccltuner

import (
	"testing"

	"dynamiccl/actions"
)

func TestGINText(t *testing.T) {
	rank := func(rank int, state GINState) RankView {
		return RankView{Rank: rank, GIN: [2]GINView{{State: state, Backend: actions.BackendProxy, Contexts: 4, Depth: 128 >> rank, Signals: 256, Counters: 128}}}
	}
	for _, c := range []struct {
		states []GINState
		want   string
	}{
		{nil, ""},
		{[]GINState{GinRefused, GinRefused}, ""},
		{[]GINState{GinWanted, GinUninitialised}, ""},
		{[]GINState{GinComplete, GinComplete}, "complete, proxy, 4 contexts, queues of 64, 256 signals and 128 counters each"},
		{[]GINState{GinInFlight, GinComplete}, "active, proxy, 4 contexts, queues of 64, 256 signals and 128 counters each"},
		{[]GINState{GinActive, GinFailed}, "active on rank 0, failed on rank 1"},
	} {
		var ranks []RankView
		for i, s := range c.states {
			ranks = append(ranks, rank(i, s))
		}
		if got := GINText(ranks); got != c.want {
			t.Errorf("%v: %q, want %q", c.states, got, c.want)
		}
	}
	var ranks []RankView
	for i := range 2 {
		r := rank(i, GinFailed)
		r.GIN[1] = GINView{State: GinActive, Backend: actions.BackendProxy, Contexts: 2, Signals: 8, Counters: 4}
		ranks = append(ranks, r)
	}
	if got, want := GINText(ranks), "failed on rank 0, failed on rank 1; active, proxy, 2 contexts, depth of queues not told by NCCL, 8 signals and 4 counters each"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
