package daemon

import (
	"os"
	"path/filepath"
	"testing"

	"dynamiccl/nccltuner"
	"dynamiccl/state"
)

// What was dropped is a counter: it does not fall where a ring with a torn head is given up, nor counts twice once its file is gone.
func TestCountersOfARingThatIsGivenUpStay(t *testing.T) {
	cfg := testConfig(t)
	d, log := open(t, cfg)
	defer d.Close()
	path := filepath.Join(cfg.Dir, "ring-3-4.shm")
	shared(t, path, []any{&nccltuner.ABIRing{Pid: 3, StartTime: 4, NumCells: 2, Dropped: 7, Unjoined: 5, Untold: 3, Head: 1 << 40, LongBytes: 9}, &[2]nccltuner.ABISample{{Cell: 0}, {Cell: 1}}})
	c := &comm{}
	c.view.Ranks = []nccltuner.RankView{{Process: nccltuner.Process{PID: 3, StartTime: 4}, Run: 11}}
	d.comms[7] = c
	counts := func(when string, rings int) {
		t.Helper()
		s, err := d.Status(t.Context())
		if traffic := d.trafficOf(11); err != nil || len(d.rings) != rings || s.Dropped != 7 || s.Unjoined != 5 || s.Untold != 3 || traffic == nil || traffic.LongBytes != 9 {
			t.Errorf("%s: %d rings, %d dropped, %d unjoined, %d untold, %+v, %v; want %d, 7, 5, 3, 9\n%s", when, len(d.rings), s.Dropped, s.Unjoined, s.Untold, traffic, err, rings, log)
		}
	}
	<-d.busy // as if the loop slept
	d.scan()
	counts("found", 1)
	d.drain()
	counts("given up", 0)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	d.scan()
	counts("gone", 0)
}

// A process without a ring is named once it has had none for a while, and still where it has left before those that have one: a run asks in
// the end.
func TestRinglessProcessThatLeft(t *testing.T) {
	var r ringed
	rank := []nccltuner.RankView{{Process: nccltuner.Process{PID: 3, StartTime: 4}}}
	for _, tc := range []struct {
		now   state.Ns
		ranks []nccltuner.RankView
		want  uint32
	}{{5e9, rank, 0}, {5e9 + ringGrace/2, nil, 0}, {6e9, rank, 0}, {6e9 + ringGrace, rank, 3}, {9e9, nil, 3}, {9e9, []nccltuner.RankView{{}}, 3}} {
		if got := r.missing(tc.now, tc.ranks, nil); got != tc.want {
			t.Errorf("after %d ns, %d ranks: process %d, want %d", tc.now, len(tc.ranks), got, tc.want)
		}
	}
}
