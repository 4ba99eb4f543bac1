package daemon

import (
	"slices"
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
	for _, l := range d.known("m", "", socket, nccl) {
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
	if got := d.known("m", "", rdma, nccl); len(got) != 2 || got[0].Action.Channels != 1 || got[1].Action.Channels != 1 || got[0].Calls+got[1].Calls != 0 {
		t.Errorf("over RDMA: %+v", got)
	}
	if !strings.Contains(log.String(), "measured again") {
		t.Errorf("nobody is told: %s", log)
	}
	if got := d.known("m", "", without, nccl); len(got) != 3 {
		t.Errorf("without a transport: %+v", got)
	}
}

// What is refused where the transport is not known is refused over all, until it has been measured there.
func TestRefusedOverEveryTransport(t *testing.T) {
	const nccl = 23007
	without := state.Shape{Ranks: 4, Nodes: 2}
	socket := without
	socket.Transport = "socket"
	ring, tree := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring}, actions.Action{Path: actions.PathCollective, Algorithm: actions.Tree}
	key := func(shape state.Shape, log2 uint8) tuner.Key {
		return tuner.Key{Machine: "m", NCCLVersion: nccl, Shape: shape, Bucket: state.Bucket{Collective: actions.AllReduce, Log2Bytes: log2}}
	}
	measured := func(shape state.Shape, log2 uint8, of ...actions.Action) tuner.Learned {
		l := tuner.Learned{Key: key(shape, log2), Action: of[0], CostNs: 1e3, Default: 2e3, Calls: 70, Evidence: map[actions.Action]tuner.Estimate{actions.Default: {N: 5, MeanNs: 2e3, VarLog: 0.1}}}
		for _, a := range of {
			l.Evidence[a] = tuner.Estimate{N: 5, MeanNs: 1e3, VarLog: 0.1}
		}
		return l
	}
	d, _ := open(t, testConfig(t))
	defer d.Close()
	d.learn([]tuner.Learned{tuner.Refusal(key(without, 10), ring), tuner.Refusal(key(without, 11), ring), tuner.Refusal(key(without, 12), ring), measured(without, 13, tree).Refusing(ring),
		measured(socket, 11, tree), measured(socket, 12, ring)})
	got := map[uint8]tuner.Learned{}
	for _, l := range d.known("m", "", socket, nccl) {
		got[l.Key.Bucket.Log2Bytes] = l
	}
	for log2, refused := range map[uint8]int{10: 1, 11: 1, 12: 0, 13: 1} {
		if l := got[log2]; len(l.Refused) != refused || l.Key.Shape != socket {
			t.Errorf("bucket %d: %+v", log2, l)
		}
	}
	if got[13].Action != actions.Default || got[11].Action != tree || got[12].Action != ring {
		t.Errorf("%+v", got)
	}
	d.refuse([]tuner.Learned{tuner.Refusal(key(socket, 12), ring), tuner.Refusal(key(socket, 14), tree)})
	d.learn([]tuner.Learned{measured(socket, 14, ring)})
	all := d.memory.Load("m", d.cfg.GPUArch, nccl, socket)
	if n := len(all); n != 3 || all[1].Action != actions.Default || !slices.Equal(all[1].Refused, []actions.Action{ring}) || !slices.Equal(all[2].Refused, []actions.Action{tree}) || all[2].Action != ring {
		t.Errorf("%+v", all)
	}
}

// Where ranks share a process LL is another kernel, so what is known of it where each has its own is left out; all else holds, and what they
// learned themselves goes first. What hung there is refused here.
func TestStoredBesideSharedProcesses(t *testing.T) {
	const nccl, shared, each = 23203, "m, several GPUs a process", "m, LL on device kernels"
	shape := state.Shape{Ranks: 4, Nodes: 1, Transport: "nvlink"}
	ll := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL}
	bulk, err := actions.Parse("lsa/bulk/8")
	if err != nil {
		t.Fatal(err)
	}
	ll128 := ll
	ll128.Protocol, ll128.Channels = actions.LL128, 8
	learned := func(machine string, c actions.Collective, log2 uint8, best actions.Action, ns float64) tuner.Learned {
		return tuner.Learned{Key: tuner.Key{Machine: machine, NCCLVersion: nccl, Shape: shape, Bucket: state.Bucket{Collective: c, Log2Bytes: log2}},
			Action: best, CostNs: ns, Default: 8e3, Calls: 70, SinceNs: 1, Evidence: map[actions.Action]tuner.Estimate{
				actions.Default: {N: 5, MeanNs: 8e3, VarLog: 0.1}, ll: {N: 5, MeanNs: 4e3, VarLog: 0.1}, ll128: {N: 5, MeanNs: 7e3, VarLog: 0.1}, bulk: {N: 5, MeanNs: 5e3, VarLog: 0.1}}}
	}
	d, log := open(t, testConfig(t))
	defer d.Close()
	d.learn([]tuner.Learned{learned(each, actions.AllReduce, 10, ll, 4e3), learned(each, actions.AllGather, 11, bulk, 5e3).Refusing(ll128), learned(each, actions.Broadcast, 12, ll, 4e3),
		learned(each, actions.ReduceScatter, 13, ll, 4e3).Refusing(bulk), learned(shared, actions.ReduceScatter, 13, ll128, 7e3)})
	got := map[uint8]tuner.Learned{}
	for _, l := range d.known(shared, each, shape, nccl) {
		if l.Key.Machine != shared {
			t.Errorf("%+v", l.Key)
		}
		got[l.Key.Bucket.Log2Bytes] = l
	}
	for log2, want := range map[uint8]struct {
		action         actions.Action
		costNs         float64
		known, refused int
	}{10: {actions.Default, 8e3, 3, 0}, 11: {bulk, 5e3, 2, 1}, 12: {ll, 4e3, 4, 0}, 13: {ll128, 7e3, 4, 0}} {
		l := got[log2]
		if _, has := l.Evidence[ll]; l.Action != want.action || l.CostNs != want.costNs || len(l.Evidence) != want.known || len(l.Refused) != want.refused || has != (log2 > 11) {
			t.Errorf("size %d: %+v", log2, l)
		}
	}
	if len(got) != 4 {
		t.Errorf("%d sizes: %s", len(got), log)
	}
	for _, l := range d.known(each, "", shape, nccl) { // and not the other way
		if l.Key.Bucket.Log2Bytes == 10 && (l.Action != ll || len(l.Evidence) != 4) || l.Action == ll128 {
			t.Errorf("%+v", l)
		}
	}
}
