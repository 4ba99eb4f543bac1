package daemon

import (
	"context"
	"slices"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/tuner"
)

// departedKept is how many communicators that are gone are remembered: `dynamiccld run` asks once its command has ended.
const departedKept = 256

// departed is a communicator as it was when its last rank left.
type departed struct {
	runs    []uint64
	status  control.CommStatus
	views   []tuner.BucketView
	graphs  []control.CapturedView
	replays []tuner.ReplayView
}

// runs are the `dynamiccld run` that the ranks belong to, each once, in the order of joining. The first one speaks for
// the communicator, so that it is reported once where every rank has a run of its own (srun dynamiccld run ...).
func (c *comm) runs() []uint64 {
	var all []uint64
	for _, r := range c.view.Ranks {
		if r.Run != 0 && !slices.Contains(all, r.Run) {
			all = append(all, r.Run)
		}
	}
	return all
}

// remember keeps what people may still ask about a communicator that goes.
func (d *Daemon) remember(c *comm) {
	runs := c.runs()
	if len(runs) == 0 { // nobody will ask what it did
		d.strays++
		return
	}
	if len(d.left) == departedKept {
		d.left = slices.Delete(d.left, 0, 1)
	}
	d.left = append(d.left, departed{runs, c.status(), d.core.BucketsOf(c.id()), d.capturedOf(c), d.core.ReplaysOf(c.id())})
}

// Ran shows the communicators of one `dynamiccld run`, those that are gone included. It first takes in all that ranks
// have left, for the question comes when they have just ended.
func (d *Daemon) Ran(ctx context.Context, run uint64) (out control.RunView, err error) {
	err = d.do(ctx, func() {
		d.scan()
		d.drain()
		d.sweep()
		d.records()
		add := func(runs []uint64, view control.CommView) {
			switch at := slices.Index(runs, run); {
			case at == 0:
				out.Comms = append(out.Comms, view)
			case at > 0:
				out.Elsewhere++
			}
		}
		out.Strays = d.strays
		for _, l := range d.left {
			add(l.runs, control.CommView{Status: l.status, Views: l.views, Captured: l.graphs, Replays: l.replays})
		}
		for _, id := range d.order {
			c := d.comms[id]
			if len(c.runs()) == 0 {
				out.Strays++
			}
			add(c.runs(), control.CommView{Status: c.status(), Views: d.core.BucketsOf(id), Captured: d.capturedOf(c), Replays: d.core.ReplaysOf(id)})
		}
		out.Traffic = d.trafficOf(run)
		out.Processes = len(d.rings)
	})
	return out, err
}
