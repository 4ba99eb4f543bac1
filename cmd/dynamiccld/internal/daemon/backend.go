package daemon

import (
	"context"
	"maps"
	"os"
	"slices"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/storefile"
	"dynamiccl/nccltuner"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// Status is the daemon as a whole.
func (d *Daemon) Status(ctx context.Context) (s control.Status, err error) {
	err = d.do(ctx, func() {
		s = control.Status{PID: os.Getpid(), Version: d.version, Layout: nccltuner.ABIVersion, StartedAt: d.startedAt(), Dir: d.dir.Path(), StorePath: d.cfg.Store,
			StoreState: d.storeState(), StoreMoved: d.memory.Stats().MovedTo, TraceError: d.traceError, Learner: d.cfg.Learner, Explore: !d.cfg.NoExplore, NowNs: d.now(), Samples: d.sampleCount,
			Dropped: d.goneDropped, Unjoined: d.goneUnjoined, Untold: d.goneUntold, Decisions: d.goneCalls, Ignored: d.goneIgnored,
			Publications: d.publications, Graphs: control.GraphsOf(d.core.CountReplays()), Links: control.LinksOf(d.core.CountLinks()), Processes: len(d.rings), UntilUnused: d.cfg.UntilUnused, Core: d.core.Totals(), Overruled: d.core.OverruledCalls(), Unknown: d.core.UnknownCalls(), FindingCounts: map[string]uint64{}}
		others := d.scanner.OtherLayouts()
		for _, layout := range slices.Sorted(maps.Keys(others)) {
			s.Others = append(s.Others, control.OtherRanks{Layout: layout, Processes: others[layout]})
		}
		for name, n := range d.findingCounts {
			s.FindingCounts[name] = n
		}
		for _, r := range d.rings {
			if stats, err := r.Stats(); err == nil {
				s.Dropped += stats.Dropped
				s.Unjoined += stats.Unjoined
				s.Untold += stats.Untold
			}
		}
		seen := fates{}
		for _, id := range d.order {
			c := d.comms[id]
			calls, ignored := c.calls()
			s.Decisions += calls
			s.Ignored += ignored
			one := c.status()
			one.Trouble = c.trouble(seen)
			s.Comms = append(s.Comms, one)
		}
	})
	return s, err
}

func (c *comm) status() control.CommStatus {
	topology := c.topology()
	s := control.CommStatus{ID: control.CommID(c.id()), Nodes: topology.Nodes, RanksJoined: c.view.Joined, Ranks: topology.Ranks,
		NCCLVersion: control.FormatNCCLVersion(c.ncclVersion()), Active: c.active, Why: c.why, Epoch: c.view.Epoch, PlanVersion: c.version,
		Transport: topology.Transport, NICs: topology.NICs, Processes: []int{}, GIN: nccltuner.GINText(c.view.Ranks)}
	c.acrossStatus(&s)
	for _, r := range c.view.Ranks {
		s.Calls = max(s.Calls, r.Calls)
		if pid := int(r.Process.PID); !slices.Contains(s.Processes, pid) {
			s.Processes = append(s.Processes, pid)
		}
	}
	return s
}

// Buckets shows every bucket of every communicator.
func (d *Daemon) Buckets(ctx context.Context) (views []tuner.BucketView, err error) {
	err = d.do(ctx, func() { views = d.core.Buckets() })
	return views, err
}

// Replays shows what our kernels took when CUDA graphs ran them.
func (d *Daemon) Replays(ctx context.Context) (views []tuner.ReplayView, err error) {
	err = d.do(ctx, func() { views = d.core.Replays() })
	return views, err
}

// Links shows what puts over GIN take.
func (d *Daemon) Links(ctx context.Context) (views []tuner.LinkView, err error) {
	err = d.do(ctx, func() { views = d.core.Links() })
	return views, err
}

// Findings gives the last findings, oldest first.
func (d *Daemon) Findings(ctx context.Context) (all []tuner.Finding, err error) {
	err = d.do(ctx, func() { all = d.findings.list() })
	return all, err
}

// Alarms gives the last alarms, oldest first.
func (d *Daemon) Alarms(ctx context.Context) (all []tuner.Alarmed, err error) {
	err = d.do(ctx, func() { all = d.alarms.list() })
	return all, err
}

// Import takes rules over as starting points of the communicators that run now. They must be measured better than NCCL's
// default before they stay. What is refused no communicator tries any more, nor any later one of these shapes.
func (d *Daemon) Import(ctx context.Context, rules []actions.Rule, refused []actions.Refusal) error {
	return d.do(ctx, func() {
		for _, id := range d.order {
			c := d.comms[id]
			if !c.active {
				continue
			}
			never := storefile.RefusedBy(refused, storefile.Target{Machine: c.machine(d.cfg.Machine), GPUArch: d.cfg.GPUArch, NCCLVersion: c.ncclVersion()}, c.shape())
			if prior := append(never, advice(rules, c.shape())...); len(prior) > 0 {
				d.step(tuner.Advised{Comm: id, Prior: prior})
			}
			d.refuse(never)
		}
	})
}

// advice turns rules into what a store would say of them.
func advice(rules []actions.Rule, shape state.Shape) []tuner.Learned {
	var prior []tuner.Learned
	choices, _ := actions.ChoicesFor(rules, shape.Nodes, shape.Ranks)
	for _, c := range choices {
		prior = append(prior, storefile.Starting(c, storefile.Target{}, shape))
	}
	return prior
}
