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
	newest      *comm // that was counted: it may have several ranks here
}

func (w waiting) kernels() int {
	if w.nccl || w.comms > 1 {
		return w.ours + 1
	}
	return w.ours
}

// waitingOf counts into all, which is emptied first, for each process that has ranks of the communicators. One rank alone waits for
// nobody, and whoever has left calls nothing.
func waitingOf(comms map[tuner.CommID]*comm, all map[nccltuner.Process]waiting) {
	clear(all)
	for _, c := range comms {
		if c.nRanks < 2 {
			continue
		}
		ours := c.kernels()
		for i := range c.view.Ranks {
			r := &c.view.Ranks[i]
			w := all[r.Process]
			if r.Left || w.newest == c {
				continue
			}
			switch w.newest = c; {
			case !ours:
				w.nccl = true
			case c.inGraphs:
				w.comms, w.ours = w.comms+1, w.ours+2
			default:
				w.comms, w.ours = w.comms+1, w.ours+1
			}
			all[r.Process] = w
		}
	}
}

// presence is all of a communicator that waitingOf may count.
type presence struct {
	joined, left      int
	kernels, inGraphs bool
}

// presenceMoved reports whether that is another than when it was last asked.
func (c *comm) presenceMoved() bool {
	now := presence{joined: len(c.view.Ranks), kernels: c.kernels(), inGraphs: c.inGraphs}
	for i := range c.view.Ranks {
		if c.view.Ranks[i].Left {
			now.left++
		}
	}
	before := c.presence
	c.presence = now
	return now != before
}

// outstanding is the most of its processes.
func (c *comm) outstanding(all map[nccltuner.Process]waiting) (most int) {
	for i := range c.view.Ranks {
		if r := &c.view.Ranks[i]; !r.Left {
			most = max(most, all[r.Process].kernels())
		}
	}
	return most
}

// tellOutstanding says to the core where more kernels may be outstanding than it has heard.
func (d *Daemon) tellOutstanding() {
	waitingOf(d.comms, d.waiting)
	for _, id := range d.order {
		c := d.comms[id]
		if n := c.outstanding(d.waiting); c.active && n > c.told {
			c.told = n
			d.step(tuner.Outstanding{Comm: id, Kernels: n})
		}
	}
}
