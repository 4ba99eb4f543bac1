package daemon

import (
	"slices"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/nccltuner"
)

// traffic is what was done for NCCL's Socket network in processes of a `dynamiccld run` that are gone.
type traffic struct {
	run uint64
	control.Traffic
}

// belongs notes whose run the ranks of a communicator that goes are: their processes may live on for a while, and tell.
func (d *Daemon) belongs(c *comm) {
	for _, r := range c.view.Ranks {
		if r.Run != 0 && hasRing(d.rings, r.Process) {
			d.runOf[r.Process] = r.Run
		}
	}
}

// runBy is the run of a process; 0: none, or it has no communicator yet.
func (d *Daemon) runBy(p nccltuner.Process) uint64 {
	if run := d.runOf[p]; run != 0 {
		return run
	}
	for _, c := range d.comms {
		for _, r := range c.view.Ranks {
			if r.Process == p {
				return r.Run
			}
		}
	}
	return 0
}

// goneTraffic keeps what a process that is gone has told.
func (d *Daemon) goneTraffic(p nccltuner.Process, told nccltuner.RingTraffic) {
	run := d.runBy(p)
	delete(d.runOf, p)
	if run == 0 || told == (nccltuner.RingTraffic{}) {
		return // nobody will ask
	}
	i := slices.IndexFunc(d.traffic, func(t traffic) bool { return t.run == run })
	if i < 0 {
		if len(d.traffic) == departedKept {
			d.traffic = slices.Delete(d.traffic, 0, 1)
		}
		d.traffic = append(d.traffic, traffic{run: run})
		i = len(d.traffic) - 1
	}
	d.traffic[i].Add(control.Traffic(told))
}

// trafficOf is what all processes of a run have told, those that are gone included; nil: nothing.
func (d *Daemon) trafficOf(run uint64) *control.Traffic {
	var all control.Traffic
	for _, t := range d.traffic {
		if t.run == run {
			all.Add(t.Traffic)
		}
	}
	for _, r := range d.rings {
		if d.runBy(r.Process()) != run {
			continue
		}
		if s, err := r.Stats(); err == nil {
			all.Add(control.Traffic(s.Traffic))
		}
	}
	if all == (control.Traffic{}) {
		return nil
	}
	return &all
}
