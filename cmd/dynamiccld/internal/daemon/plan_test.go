package daemon

import (
	"reflect"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/nccltuner"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// What a plan says of calls, graphs and puts that are timed closely reaches the ranks.
func TestPlanSpec(t *testing.T) {
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}
	tree := actions.Action{Path: actions.PathCollective, Algorithm: actions.Tree, Protocol: actions.LL, Channels: 4}
	for _, c := range []struct {
		plan tuner.Plan
		want nccltuner.PlanSpec
	}{
		{tuner.Plan{SampleEvery: 4}, nccltuner.PlanSpec{SampleEvery: 4}},
		{tuner.Plan{Closely: true}, nccltuner.PlanSpec{CloseEpochs: closeEpochs}},
		{tuner.Plan{DefaultCalls: true}, nccltuner.PlanSpec{Defaults: nccltuner.PlanDefaultCalls}},
		{tuner.Plan{DefaultGraphs: true}, nccltuner.PlanSpec{Defaults: nccltuner.PlanDefaultGraphs}},
		{tuner.Plan{Entries: []tuner.Entry{{Bucket: b, ID: 7, Base: tree, Skip: 3, Trials: []actions.Action{actions.Default, tree}}}},
			nccltuner.PlanSpec{Entries: []nccltuner.EntrySpec{{Bucket: b, ID: 7, Base: tree.Word(), Skip: 3, Trials: []uint32{0, tree.Word()}}}}},
	} {
		if got := planSpec(&c.plan); !reflect.DeepEqual(*got, c.want) {
			t.Errorf("%+v: %+v, want %+v", c.plan, *got, c.want)
		}
	}
}
