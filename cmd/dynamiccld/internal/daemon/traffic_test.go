package daemon

import (
	"context"
	"path/filepath"
	"testing"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/nccltuner"
)

// A run is told what its own processes did for sockets: those that live, those whose communicator went first, and those that went with it.
func TestTrafficOfARun(t *testing.T) {
	cfg := testConfig(t)
	d, _ := open(t, cfg)
	defer d.Close()
	process := func(pid uint32) nccltuner.Process { return nccltuner.Process{PID: pid, StartTime: 4} }
	for pid, name := range map[uint32]string{3: "ring-3-4.shm", 5: "ring-5-4.shm", 6: "ring-6-4.shm"} {
		shared(t, filepath.Join(cfg.Dir, name), []any{&nccltuner.ABIRing{Pid: pid, StartTime: 4, NumCells: 2, LongBytes: 1000 * uint64(pid), MovedBytes: 100 * uint64(pid), Together: uint64(pid)},
			&[2]nccltuner.ABISample{{Cell: 0}, {Cell: 1}}})
		r, err := d.dir.OpenRing(process(pid))
		if err != nil {
			t.Fatal(err)
		}
		d.rings = append(d.rings, r)
	}
	ring := func(pid uint32) *nccltuner.Ring {
		for _, r := range d.rings {
			if r.Process().PID == pid {
				return r
			}
		}
		t.Fatalf("no ring of %d", pid)
		return nil
	}
	c := &comm{}
	for pid, run := range map[uint32]uint64{3: 9, 5: 9, 6: 11} {
		rank := nccltuner.RankView{Run: run}
		rank.Process = process(pid)
		c.view.Ranks = append(c.view.Ranks, rank)
	}
	d.comms[7] = c
	wants := func(when string, want map[uint64]control.Traffic) {
		t.Helper()
		for run, w := range want {
			got := d.trafficOf(run)
			if got == nil && w != (control.Traffic{}) || got != nil && *got != w {
				t.Errorf("%s: run %d has %+v, want %+v", when, run, got, w)
			}
		}
	}
	want := map[uint64]control.Traffic{9: {LongBytes: 8000, MovedBytes: 800, Together: 8}, 11: {LongBytes: 6000, MovedBytes: 600, Together: 6}, 12: {}}
	wants("all live", want)
	d.dropRing(ring(3))
	wants("a process went", want)
	d.belongs(c)
	delete(d.comms, 7)
	wants("the communicator went", want)
	d.dropRing(ring(5))
	d.dropRing(ring(6))
	wants("all went", want)
	if len(d.runOf) != 0 {
		t.Errorf("%v is kept", d.runOf)
	}
	for run := range uint64(2 * departedKept) {
		d.runOf[process(8)] = 100 + run
		d.goneTraffic(process(8), nccltuner.RingTraffic{Together: 1})
	}
	if len(d.traffic) != departedKept || d.trafficOf(9) != nil || d.trafficOf(100+2*departedKept-1).Together != 1 {
		t.Errorf("%d runs are kept", len(d.traffic))
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- d.Run(ctx) }()
	view, err := d.Ran(ctx, 100+2*departedKept-1)
	cancel()
	if <-ended; err != nil || view.Traffic == nil || view.Traffic.Together != 1 {
		t.Errorf("the run's report: %+v, %v", view, err)
	}
}
