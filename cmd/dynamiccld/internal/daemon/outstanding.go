package daemon

import (
	"dynamiccl/nccltuner"
	"dynamiccl/tuner"
)

// Kernels that wait for peers and may be on a GPU at once (tuner/places.go). A communicator's own run one after the other, but those
// of graphs beside others. NCCL's kernels count once where several communicators may have some, ours or others: among themselves
// they are NCCL's and the program's business. A communicator that is alone calls one or the other.

// waiting is a process's.
type waiting struct {
	comms, ours int // communicators that can run our kernels, and kernels of theirs
	nccl        bool
}

func (w waiting) kernels() int {
	if w.nccl || w.comms > 1 {
		return w.ours + 1
	}
	return w.ours
}

// waitingOf counts for each process that has ranks of the communicators. One rank alone waits for nobody, and whoever has left
// calls nothing.
func waitingOf(comms map[tuner.CommID]*comm) map[nccltuner.Process]waiting {
	all := map[nccltuner.Process]waiting{}
	for _, c := range comms {
		if c.nRanks < 2 {
			continue
		}
		ours := c.kernels()
		for process := range c.processes() {
			w := all[process]
			switch {
			case !ours:
				w.nccl = true
			case c.inGraphs:
				w.comms, w.ours = w.comms+1, w.ours+2
			default:
				w.comms, w.ours = w.comms+1, w.ours+1
			}
			all[process] = w
		}
	}
	return all
}

// processes are those in which ranks of the communicator live, each once.
func (c *comm) processes() map[nccltuner.Process]bool {
	all := map[nccltuner.Process]bool{}
	for _, r := range c.view.Ranks {
		if !r.Left {
			all[r.Process] = true
		}
	}
	return all
}

// outstanding is the most of its processes.
func (c *comm) outstanding(all map[nccltuner.Process]waiting) (most int) {
	for process := range c.processes() {
		most = max(most, all[process].kernels())
	}
	return most
}

// tellOutstanding says to the core where more kernels may be outstanding than it has heard.
func (d *Daemon) tellOutstanding() {
	all := waitingOf(d.comms)
	for _, id := range d.order {
		c := d.comms[id]
		if n := c.outstanding(all); c.active && n > c.told {
			c.told = n
			d.step(tuner.Outstanding{Comm: id, Kernels: n})
		}
	}
}
