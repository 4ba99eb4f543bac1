package daemon

import (
	"testing"

	"dynamiccl/actions"
	"dynamiccl/nccltuner"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// commOf is a communicator with a rank in each of these processes.
func commOf(kernels bool, pids ...uint32) *comm {
	c := &comm{nRanks: len(pids), active: true}
	for _, pid := range pids {
		c.view.Ranks = append(c.view.Ranks, nccltuner.RankView{Process: nccltuner.Process{PID: pid}, Kernels: kernels})
	}
	return c
}

// on has each rank on the GPU of that number.
func (c *comm) on(gpus ...byte) *comm {
	for i, gpu := range gpus {
		c.view.Ranks[i].GPU = nccltuner.GPU{UUID: [16]byte{gpu}, Multiprocessors: 100 + int(gpu)}
	}
	return c
}

func TestWaitingOf(t *testing.T) {
	graphs := commOf(true, 1, 2)
	graphs.inGraphs = true
	left := commOf(true, 1, 2)
	left.view.Ranks[0].Left = true
	joining := commOf(false, 1, 2)
	joining.nRanks = 8
	sharedGraphs := commOf(true, 1, 2).on(1, 1)
	sharedGraphs.inGraphs = true
	half := commOf(true, 1, 2)
	half.view.Ranks[1].Kernels = false
	for _, c := range []struct {
		what  string
		comms []*comm
		want  []int // of each
	}{
		{"one", []*comm{commOf(true, 1, 2)}, []int{1}},
		{"with graphs", []*comm{graphs}, []int{2}},
		{"several GPUs in a process", []*comm{commOf(true, 1, 1, 1, 1)}, []int{1}},
		{"two, one with graphs", []*comm{graphs, commOf(true, 1, 2)}, []int{4, 4}},
		{"of one rank", []*comm{commOf(true, 1, 2), commOf(true, 1), commOf(false, 2)}, []int{1, 0, 0}},
		{"NCCL's alone count once", []*comm{commOf(true, 1, 2), commOf(false, 1, 2), half, joining}, []int{2, 2, 2, 2}},
		{"the fullest process counts", []*comm{commOf(true, 1, 2), commOf(true, 2, 3), commOf(true, 2, 4), commOf(true, 5, 6)}, []int{4, 4, 4, 1}},
		{"several GPUs in a process, which are known", []*comm{commOf(true, 1, 1, 1, 1).on(1, 2, 3, 4), commOf(true, 1, 1).on(1, 2)}, []int{3, 3}},
		{"other GPUs of the same processes", []*comm{commOf(true, 1, 1).on(1, 2), commOf(true, 1, 1).on(3, 4)}, []int{1, 1}},
		{"two programs on the same GPUs", []*comm{commOf(true, 1, 2).on(1, 2), commOf(true, 3, 4).on(1, 2)}, []int{3, 3}},
		{"ranks that share a GPU", []*comm{commOf(true, 1, 2, 3, 4).on(1, 1, 1, 2)}, []int{4}},
		{"with graphs", []*comm{sharedGraphs}, []int{5}},
		{"NCCL's of another program", []*comm{commOf(true, 1, 2).on(1, 2), commOf(false, 3, 4).on(2, 3)}, []int{2, 2}},
		{"a rank has left", []*comm{left, commOf(true, 1, 3)}, []int{1, 1}},
	} {
		all := map[tuner.CommID]*comm{}
		for i, c := range c.comms {
			all[tuner.CommID(i)] = c
		}
		waiting := map[place]waiting{{process: nccltuner.Process{PID: 6}}: {nccl: true}} // of a look before
		waitingOf(all, waiting)
		for i, m := range c.comms {
			if n := m.outstanding(tuner.CommID(i), waiting).Kernels; m.nRanks > 1 && n != c.want[i] {
				t.Errorf("%s, number %d: %d kernels, want %d", c.what, i, n, c.want[i])
			}
		}
	}
}

// A second communicator, and a graph, are said to the core once, and its plans go by them; that a communicator has gone is not.
func TestOutstandingIsTold(t *testing.T) {
	d, _ := open(t, testConfig(t))
	defer d.Close()
	bucket, _ := state.BucketOf(actions.AllReduce, 1<<20)
	kernel := actions.Action{Path: actions.PathLSA, Kernel: actions.OneShot, Channels: 64}
	join := func(id tuner.CommID) {
		c := commOf(true, 1, 2)
		c.broken = true // it has no record to read
		d.enter(id, c)
		d.step(tuner.CommJoined{Comm: id, Shape: state.Shape{Ranks: 2, Nodes: 1}, EventTimed: true, Explore: true})
		d.step(tuner.Marks{Comm: id, Bucket: bucket, Set: tuner.MarkOneShot | tuner.MarkBulk})
	}
	most := func() (ctas, beside int) {
		v := d.core.BucketsOf(1)[0]
		return v.MostCTAs, v.Beside
	}
	for _, step := range []struct {
		what         string
		do           func()
		ctas, beside int
	}{
		{"one", func() { join(1) }, 0, 0},
		{"two", func() { join(2) }, 32, 2},
		{"NCCL's in a graph", func() { d.sample(&nccltuner.Sample{CommID: 1, Bucket: bucket, Captured: true, Untimed: true}) }, 32, 2},
		{"ours in a graph", func() {
			d.sample(&nccltuner.Sample{CommID: 1, Bucket: bucket, Captured: true, Untimed: true, Action: kernel})
		}, 32, 3},
		{"again", func() {
			d.sample(&nccltuner.Sample{CommID: 1, Bucket: bucket, Captured: true, Untimed: true, Action: kernel})
		}, 32, 3},
		{"a replay", func() {
			d.sample(&nccltuner.Sample{CommID: 2, Bucket: bucket, Bytes: 1 << 20, Replayed: true, Action: kernel})
		}, 16, 4},
		{"nobody's", func() {
			d.sample(&nccltuner.Sample{CommID: 3, Bucket: bucket, Captured: true, Untimed: true, Action: kernel})
		}, 16, 4},
		{"three, that one with a graph", func() { join(3) }, 16, 6},
		{"one has gone", func() { delete(d.comms, 3); d.order = d.order[:2] }, 16, 6},
		{"its GPUs are small", func() { d.comms[1].on(1, 2) }, 4, 6},
		{"and are not known any more", func() { d.comms[1].on(0, 0) }, 4, 6},
		{"a rank allows more", func() { d.comms[1].view.Ranks[0].MaxCTAs = 8 }, 4, 6},
		{"and another one less", func() { d.comms[1].view.Ranks[1].MaxCTAs = 3 }, 3, 0},
	} {
		step.do()
		d.records()
		if ctas, beside := most(); ctas != step.ctas || beside != step.beside {
			t.Errorf("%s: %d CTAs beside %d kernels, want %d beside %d", step.what, ctas, beside, step.ctas, step.beside)
		}
	}
}

// Whatever waitingOf may count is seen to move, once.
func TestPresenceMoves(t *testing.T) {
	c := commOf(false, 1, 2)
	for _, step := range []struct {
		what string
		do   func()
	}{
		{"it came", func() {}},
		{"one more rank has joined", func() { c.view.Ranks = append(c.view.Ranks, nccltuner.RankView{}) }},
		{"kernels can be run", func() {
			for i := range c.view.Ranks {
				c.view.Ranks[i].Kernels = true
			}
		}},
		{"graphs have some", func() { c.inGraphs = true }},
		{"a rank says which GPU it has", func() { c.on(1) }},
		{"a rank allows few CTAs", func() { c.view.Ranks[1].MaxCTAs = 3 }},
		{"a rank has left", func() { c.view.Ranks[1].Left = true }},
		{"another one, too", func() { c.view.Ranks[0].Left = true }},
	} {
		if step.do(); !c.presenceMoved() {
			t.Errorf("%s, and nothing is said to have moved", step.what)
		}
		if c.presenceMoved() {
			t.Errorf("%s long ago", step.what)
		}
	}
}
