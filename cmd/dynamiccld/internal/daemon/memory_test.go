package daemon

import (
	"strings"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/storefile"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// Rules that were imported without a transport are starting points for all; what was measured without one is nobody's else, and
// it is said.
func TestStoredWithoutTransport(t *testing.T) {
	const nccl = 23007
	bucket := func(log2 uint8) state.Bucket {
		return state.Bucket{Collective: actions.AllReduce, Log2Bytes: log2}
	}
	choice := func(shape state.Shape, log2 uint8, channels uint8, calls uint64) tuner.Learned {
		l := storefile.Starting(actions.BucketChoice{Collective: actions.AllReduce, Log2Bytes: log2,
			Action: actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Channels: channels}}, storefile.Target{Machine: "m", NCCLVersion: nccl}, shape)
		l.Calls = calls
		return l
	}
	without := state.Shape{Ranks: 4, Nodes: 2}
	socket, rdma := without, without
	socket.Transport, rdma.Transport = "socket", "rdma"
	d, log := open(t, testConfig(t))
	defer d.Close()
	d.learn([]tuner.Learned{choice(without, 10, 1, 0), choice(without, 11, 1, 50), choice(without, 12, 1, 0), choice(socket, 12, 2, 50)})

	got := map[state.Bucket]uint8{}
	for _, l := range d.known("m", socket, nccl) {
		if l.Key.Shape != socket {
			t.Errorf("%+v is not of the communicator's shape", l.Key)
		}
		got[l.Key.Bucket] = l.Action.Channels
	}
	if len(got) != 2 || got[bucket(10)] != 1 || got[bucket(12)] != 2 {
		t.Errorf("over sockets: %v", got)
	}
	if strings.Contains(log.String(), "measured again") {
		t.Error("what is measured over sockets is there, and it is said that it is not")
	}
	if got := d.known("m", rdma, nccl); len(got) != 2 || got[0].Action.Channels != 1 || got[1].Action.Channels != 1 || got[0].Calls+got[1].Calls != 0 {
		t.Errorf("over RDMA: %+v", got)
	}
	if !strings.Contains(log.String(), "measured again") {
		t.Errorf("nobody is told: %s", log)
	}
	if got := d.known("m", without, nccl); len(got) != 3 {
		t.Errorf("without a transport: %+v", got)
	}
}
