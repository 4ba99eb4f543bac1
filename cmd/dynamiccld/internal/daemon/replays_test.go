package daemon

import (
	"context"
	"strings"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/nccltuner"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// Samples of replays reach the core and are shown; a change is said once, in findings and log. None is taken for a call.
func TestReplaysAreShown(t *testing.T) {
	d, log := open(t, testConfig(t))
	defer d.Close()
	d.step(tuner.CommJoined{Comm: 7, Shape: state.Shape{Ranks: 2, Nodes: 1}, EventTimed: true, Explore: true})
	bucket, _ := state.BucketOf(actions.AllReduce, 64<<10)
	kernel := actions.Action{Path: actions.PathLSA, Kernel: actions.OneShot, Channels: 4}
	s := nccltuner.Sample{CommID: 7, NRanks: 2, Bytes: 64 << 10, Bucket: bucket, Action: kernel, Ran: kernel, Replayed: true}
	const replays = 1000
	for i := range uint64(replays) {
		d.batchNow = state.Ns(1 + i)
		s.SignalNs, s.CounterNs = 3_000+state.Ns(i*7%50), 1_000+state.Ns(i*11%30)
		if i >= replays/2 {
			s.SignalNs, s.CounterNs = s.SignalNs*5/4, s.CounterNs*5/4
		}
		for rank := range int32(2) {
			s.Seq, s.Rank = 1<<32-replays/2*64+i*64, rank
			s.Seq &= 1<<32 - 1
			d.sample(&s)
		}
	}
	all := d.core.Replays()
	if len(all) != 1 || all[0].Replays != replays || all[0].Changes != 1 || all[0].Choice != kernel || all[0].Bytes != 64<<10 || all[0].FirstNs != 1 || all[0].LastNs != replays {
		t.Fatalf("%+v", all)
	}
	if c := all[0].Changed; c.AtNs <= replays/2 || c.AtNs > replays/2+40 || c.Signal.Ratio() < 1.2 || c.Signal.Ratio() > 1.3 || c.Counter.Ratio() < 1.2 {
		t.Errorf("%+v", c)
	}
	totals := d.core.Totals()
	if totals.Replays.Samples != 2*replays || totals.Replays.Joined != replays || d.sampleCount != 2*replays {
		t.Errorf("%+v of %d samples", totals.Replays, d.sampleCount)
	}
	totals.Replays = tuner.ReplayTotals{}
	if totals != (tuner.Totals{}) || len(d.captured) != 0 {
		t.Errorf("taken for calls: %+v", totals)
	}
	if len(d.findings.all) != 1 || d.findings.all[0].Bucket != bucket || strings.Count(log.String(), "in CUDA graphs have changed") != 1 {
		t.Errorf("%+v\n%s", d.findings, log)
	}

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	st, err := d.Status(ctx)
	if err != nil || st.Graphs == nil || *st.Graphs != (control.Graphs{Replays: replays, Choices: 1, Changed: 1}) {
		t.Errorf("%+v, %v", st.Graphs, err)
	}
	if views, err := d.Replays(ctx); err != nil || len(views) != 1 {
		t.Errorf("%+v, %v", views, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
