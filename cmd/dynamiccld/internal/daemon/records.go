package daemon

import (
	"errors"
	"fmt"
	"slices"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/nccltuner"
	"dynamiccl/tuner"
)

func (d *Daemon) addRecord(r *nccltuner.Record) {
	id := tuner.CommID(r.Info().CommID)
	if old := d.comms[id]; old != nil { // a new generation under the same name
		d.forget(old)
	}
	c, err := newComm(r)
	if err != nil {
		d.log.Error("a communicator's record cannot be served; its ranks run plain NCCL", "err", err)
		return
	}
	d.enter(id, c)
	d.readRecord(c)
}

// enter takes in a communicator, of which calls may have been captured before its record was found.
func (d *Daemon) enter(id tuner.CommID, c *comm) {
	c.inGraphs = capturedOurs(d.captured[id])
	d.comms[id] = c
	d.order = append(d.order, id)
}

func (d *Daemon) dropRecord(r *nccltuner.Record) {
	if c := d.comms[tuner.CommID(r.Info().CommID)]; c != nil && c.record == r {
		d.forget(c)
	}
	d.report(r.Close())
}

func (d *Daemon) forget(c *comm) {
	// What the ranks wrote since the last look counts; when it cannot be read, that look has to do.
	_ = c.record.View(&c.view)
	if c.active && c.view.Hosts == nccltuner.HostsParted {
		c.why = c.whyAcross()
	}
	d.remember(c)
	d.belongs(c)
	if c.active {
		d.log.Info("communicator left", "comm", control.CommID(c.id()))
		d.step(tuner.CommLeft{Comm: c.id()})
	}
	calls, ignored := c.calls()
	d.goneCalls += calls
	d.goneIgnored += ignored
	delete(d.comms, c.id())
	delete(d.captured, c.id())
	d.order = slices.DeleteFunc(d.order, func(id tuner.CommID) bool { return id == c.id() })
}

// giveUpComm leaves a communicator to itself: its ranks keep the last agreed plan.
func (d *Daemon) giveUpComm(c *comm, err error) {
	c.broken, c.why = true, err.Error()
	d.log.Error("a communicator is left alone: its ranks keep their last agreed choices", "comm", control.CommID(c.id()), "err", err)
	if c.active {
		c.active = false
		d.step(tuner.CommLeft{Comm: c.id()})
	}
}

// records reads who joined and what NCCL allows.
func (d *Daemon) records() {
	moved := false
	for _, id := range d.order { // which reading changes nothing of
		c := d.comms[id]
		d.readRecord(c)
		moved = c.presenceMoved() || moved
	}
	if moved {
		d.tellOutstanding()
	}
}

func (d *Daemon) readRecord(c *comm) {
	if c.broken {
		return
	}
	if err := c.record.View(&c.view); err != nil {
		d.giveUpComm(c, err)
		return
	}
	d.across(c)
	if !c.active {
		ok, why := c.ready()
		if !ok {
			if why != c.why && c.view.Veto {
				d.log.Info("communicator passes through", "comm", control.CommID(c.id()), "why", why)
			}
			c.why = why
			return
		}
		d.activate(c)
		if c.broken {
			return
		}
	}
	if !c.opened && c.kernels() {
		c.opened = true
		d.log.Info("kernels over load and store are open", "comm", control.CommID(c.id()))
		d.step(tuner.KernelsOpen{Comm: c.id()})
	}
	c.why = c.whyAcross()
	if c.unfit() {
		c.why = "ranks refuse the plan as damaged and run NCCL's defaults; use plugin and dynamiccld of one build"
		d.once("communicator "+control.CommID(c.id()), errors.New(c.why))
	}
	if c.noTimes() && c.why == "" {
		c.why = whyNoTimes
		d.onceWarn(whyNoTimes)
	}
	if pid := c.rings.missing(d.now(), c.view.Ranks, d.rings); pid != 0 && c.why == "" {
		c.why = fmt.Sprintf("no samples come from process %d: it could make no ring in %s; make room there (%.1f MiB a process), raise a limit on the size of files (ulimit -f), or set DYNAMICCL_DIR; NCCL_DEBUG=WARN has the reason",
			pid, d.cfg.Dir, float64(nccltuner.RingBytes)/(1<<20))
		d.onceWarn(c.why)
	}
	if calls, _ := c.calls(); calls == c.readAt && calls > 0 && !c.view.Several() {
		return // no epoch has passed since: marks are as they were
	} else {
		c.readAt = calls
	}
	if err := c.newMarks(func(m tuner.Marks) { d.step(m) }); err != nil {
		d.giveUpComm(c, err)
	}
}

func (d *Daemon) activate(c *comm) {
	last, err := c.record.LastEntryID()
	if err != nil {
		d.giveUpComm(c, err)
		return
	}
	inForce, err := c.record.NewestBases()
	if err != nil {
		d.giveUpComm(c, err)
		return
	}
	c.active, c.why = true, ""
	explore := c.measured() && !c.noExplore()
	version, topology := c.ncclVersion(), c.topology()
	machine := c.machine(d.cfg.Machine)
	d.log.Info("communicator joined", "comm", control.CommID(c.id()), "shape", topology.Shape.String(), "machine", machine, "gpu_arch", d.cfg.GPUArch,
		"nccl", control.FormatNCCLVersion(version), "explore", explore, "fixed_numerics", c.fixedNumerics())
	if !c.measured() && !c.noTimes() {
		d.onceWarn("a rank runs without our profiler plugin: stored choices are used, nothing is explored; set NCCL_PROFILER_PLUGIN=dynamiccl, and name your own profiler in DYNAMICCL_CHAIN_PROFILER")
	}
	heard := uint64(0)
	if c.view.Several() {
		heard, _ = c.view.Heard()
	}
	waitingOf(d.comms, d.waiting)
	c.told = c.outstanding(c.id(), d.waiting)
	d.step(tuner.CommJoined{Comm: c.id(), Machine: machine, Shape: topology.Shape, Heard: heard, NICs: topology.NICs, NCCLVersion: version, Explore: explore, FixedNumerics: c.fixedNumerics(),
		EventTimed: c.eventTimed(), MaxChannels: c.record.Info().MaxChannels, OwnGathers: c.ownGathers(), LastID: last, InForce: inForce, Prior: d.known(machine, c.beside(d.cfg.Machine), topology.Shape, version),
		Outstanding: c.told.Kernels, Multiprocessors: c.told.Multiprocessors, MaxCTAs: c.told.MaxCTAs})
}
