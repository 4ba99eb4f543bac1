package daemon

import (
	"dynamiccl/nccltuner"
	"dynamiccl/tuner"
)

// Kernels that wait for peers and may be on a GPU at once (tuner/places.go), whosever they are: under CUDA's multi-process service
// several processes run some there, and NCCL lets ranks of a communicator share a GPU where it is told to. A rank's own run one after
// the other, but those of graphs beside others. NCCL's kernels count once where several ranks may have some, ours or others: among
// themselves they are NCCL's and the program's business. A rank that is alone there calls one or the other.

// place is a GPU, or a process where its GPU is not known. That one has each rank of a communicator on a GPU of its own.
type place struct {
	gpu     [16]byte // its UUID
	process nccltuner.Process
}

func placeOf(r *nccltuner.RankView) place {
	if r.GPU.Known() {
		return place{gpu: r.GPU.UUID}
	}
	return place{process: r.Process}
}

// waiting is a place's.
type waiting struct {
	ranks, ours int // that can run our kernels, and kernels of theirs
	nccl        bool
	newest      *comm // that was counted
}

func (w waiting) kernels() int {
	if w.nccl || w.ranks > 1 {
		return w.ours + 1
	}
	return w.ours
}

// waitingOf counts into all, which is emptied first, for each place that has ranks of the communicators. One rank alone waits for
// nobody, and whoever has left calls nothing.
func waitingOf(comms map[tuner.CommID]*comm, all map[place]waiting) {
	clear(all)
	for _, c := range comms {
		if c.nRanks < 2 {
			continue
		}
		ours := c.kernels()
		for i := range c.view.Ranks {
			r := &c.view.Ranks[i]
			p := placeOf(r)
			w := all[p]
			if r.Left || w.newest == c && !r.GPU.Known() {
				continue
			}
			switch w.newest = c; {
			case !ours:
				w.nccl = true
			case c.inGraphs:
				w.ranks, w.ours = w.ranks+1, w.ours+2
			default:
				w.ranks, w.ours = w.ranks+1, w.ours+1
			}
			all[p] = w
		}
	}
}

// presence is all of a communicator that waitingOf and outstanding may count.
type presence struct {
	joined, left, gpus int
	allowed            int // CTAs, of all ranks
	kernels, inGraphs  bool
}

// presenceMoved reports whether that is another than when it was last asked.
func (c *comm) presenceMoved() bool {
	now := presence{joined: len(c.view.Ranks), kernels: c.kernels(), inGraphs: c.inGraphs}
	for i := range c.view.Ranks {
		if c.view.Ranks[i].Left {
			now.left++
		}
		if c.view.Ranks[i].GPU.Known() {
			now.gpus++
		}
		now.allowed += c.view.Ranks[i].MaxCTAs
	}
	before := c.presence
	c.presence = now
	return now != before
}

// outstanding is the most of its places, the multiprocessors of its least GPU that says how many it has, and the least CTAs that a rank allows.
func (c *comm) outstanding(id tuner.CommID, all map[place]waiting) tuner.Outstanding {
	o := tuner.Outstanding{Comm: id}
	for i := range c.view.Ranks {
		r := &c.view.Ranks[i]
		if r.Left {
			continue
		}
		o.Kernels = max(o.Kernels, all[placeOf(r)].kernels())
		o.Narrow(r.GPU.Multiprocessors, r.MaxCTAs)
	}
	return o
}

// tellOutstanding says to the core where more kernels may be outstanding than it has heard, or on another GPU.
func (d *Daemon) tellOutstanding() {
	waitingOf(d.comms, d.waiting)
	for _, id := range d.order {
		c := d.comms[id]
		now := c.outstanding(id, d.waiting)
		now.Kernels = max(now.Kernels, c.told.Kernels)
		if c.active && now != c.told {
			c.told = now
			d.step(now)
		}
	}
}
