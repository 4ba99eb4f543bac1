package paired

import (
	"strings"
	"testing"
)

// Ranks on several hosts, each with shared files and a daemon of its own, agree on kernels over GIN, learn them, and every element is right.
func TestLiveHostsGIN(t *testing.T) {
	m := newMachine(t, "h200x4-socket-2nodes-quiet", "DYNAMICCL_NO_KERNELS=", "DYNAMICCL_GIN=1", "DYNAMICCL_GIN_KERNELS="+fatbin(t), "FAKEGPU_OPTIONS=--nccl 2.28.9", "FAKEGPU_GIN_TYPES=2", "FAKEGPU_KERNEL_US=4")
	said, code := m.bench("", 0, "--nodes", "2", "--hosts", "--arms", "plain,run", "--collectives", "AllReduce,AllGather,AllToAll", "--sizes", "1K,64K", "--phases", "quiet:12s", "--min-rounds", "100",
		"--explore-budget", "30%", "--calls", "20")
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, said)
	}
	r, ours := m.read(), map[string]int{}
	for _, c := range r.phases[0].Choices["run"] {
		if strings.HasPrefix(c.Choice, "gin/") {
			ours[c.Collective]++
		}
	}
	if ours["AllReduce"]+ours["AllGather"] < 2 || ours["AllToAll"] < 1 { // of AllToAll NCCL asks nobody: all ranks count it
		t.Errorf("choices that are kernels on GIN: %v of %+v\n%s", ours, r.phases[0].Choices["run"], said)
	}
	late := 0 // a machine that is busy takes samples, and one of three may not have come to it by half of the phase
	for _, p := range r.phases[0].Points {
		if p.Bytes == 64<<10 && p.Us["run"] > 8 {
			late++
			t.Logf("%s %d: %.2f us, where kernels on GIN take 4 and NCCL %.2f", p.Collective, p.Bytes, p.Us["run"], p.Us["plain"])
		}
	}
	if late > 1 {
		t.Errorf("%d of 3 collectives have not come to kernels on GIN", late)
	}
	d := r.end.Daemons["run"]
	if d == nil || len(d.Status.Comms) != 1 || d.Status.Comms[0].Hosts != "met" || d.Status.Comms[0].RanksJoined != 2 {
		t.Fatalf("what the daemon of rank 0's host says: %+v", d)
	}
	// Of each pair, on one host or two, both ways on both contexts; where puts are timed closely hosts tell each other of some.
	ways := map[[2]int32]int{}
	for _, l := range d.Links {
		if l.Trips >= 10 {
			ways[[2]int32{l.Rank, l.Peer}]++
		}
	}
	for rank := range int32(4) {
		for peer := range int32(4) {
			if want := 2; rank != peer && ways[[2]int32{rank, peer}] != want {
				t.Errorf("%d ways from rank %d to rank %d, want %d", ways[[2]int32{rank, peer}], rank, peer, want)
			}
		}
	}
	trips := d.Status.Core.Trips
	if trips.Joined < 500 || trips.Elsewhere < trips.Samples/4 || trips.Samples > 2*trips.Joined || trips.Rejected+trips.Unkept > 0 {
		t.Errorf("%+v", trips)
	}
	if t.Failed() {
		t.Logf("%s\n%+v", said, d)
	}
}

// Between pretended nodes kernels on GIN are learnt like any other choice, every element right, and the daemon hears from both
// ranks of each pair what their puts take, on each context.
func TestLiveGIN(t *testing.T) { learnsGIN(t, "--nccl 2.28.9", "3s", "proxy") }

// Where NCCL has two backends on the communicator, programs learn among the kernels of both. Which calls are timed is by their
// numbers, of which a backend that is not taken has few.
func TestLiveGINBackends(t *testing.T) { learnsGIN(t, "--nccl 2.32.3", "8s", "gdaki", "proxy") }

func learnsGIN(t *testing.T, options, takes string, backends ...string) {
	types := map[string]string{"proxy": "2", "gdaki": "3"}
	has := ""
	for _, b := range backends {
		has += types[b]
	}
	m := newMachine(t, "h200x4-socket-2nodes-quiet", "DYNAMICCL_NO_KERNELS=", "DYNAMICCL_GIN_KERNELS="+fatbin(t), "FAKEGPU_OPTIONS="+options, "FAKEGPU_GIN_TYPES="+has, "FAKEGPU_KERNEL_US=4")
	said, code := m.bench("", 0, "--nodes", "2", "--arms", "plain,run", "--collectives", "AllReduce,AllToAll", "--sizes", "1K,64K", "--phases", "quiet:"+takes, "--min-rounds", "100",
		"--explore-budget", "30%", "--calls", "20")
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, said)
	}
	r := m.read()
	for _, p := range r.phases[0].Points {
		if p.Bytes == 64<<10 && p.Us["run"] > 6 {
			t.Errorf("%s %d: %.2f us, where kernels on GIN take 4 and NCCL %.2f", p.Collective, p.Bytes, p.Us["run"], p.Us["plain"])
		}
	}
	ours := 0
	for _, c := range r.phases[0].Choices["run"] {
		if strings.HasPrefix(c.Choice, "gin/") {
			ours++
		}
	}
	if ours < 2 {
		t.Errorf("%d choices are kernels on GIN: %+v", ours, r.phases[0].Choices["run"])
	}
	d := r.end.Daemons["run"]
	if d == nil || d.Error != "" || d.Status.Links == nil {
		t.Fatalf("what the daemon says: %+v\n%s", d, said)
	}
	// Ranks tell alike: what one has said of a pair its peer says, too, but for what came last.
	l, trips := d.Status.Links, d.Status.Core.Trips
	if l.Links < 4*3*2 || l.Links > 4*3*2*len(backends) || trips.Joined < 100 || l.Trips != trips.Joined || trips.Samples > trips.Joined+trips.Joined/2 || trips.Rejected+trips.Unknown+trips.Unkept > 0 {
		t.Errorf("%+v, %+v", l, trips)
	}
}
