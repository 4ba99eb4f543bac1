package paired

import "testing"

// Ranks on several hosts, each with shared files and a daemon of its own, learn what one host's ranks learn.
func TestLiveHosts(t *testing.T) {
	for _, nccl := range []string{"2.30.7", "2.32.3"} {
		t.Run(nccl, func(t *testing.T) { learnsOverHosts(t, nccl) })
	}
}

func learnsOverHosts(t *testing.T, nccl string) {
	t.Helper()
	m := newMachine(t, sockets, "FAKEGPU_OPTIONS=--nccl "+nccl) // each rank can tell an AllGather from broadcasts of a group, so it has numbers of channels
	said, code := m.bench("", 0, "--nodes", "4", "--hosts", "--arms", "plain,run", "--collectives", "AllReduce,AllGather", "--sizes", "1K,64K",
		"--phases", "quiet:4s", "--min-rounds", "60", "--explore-budget", "30%", "--calls", "20", "--learner", "coordinate-descent")
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, said)
	}
	r := m.read()
	for _, p := range r.phases[0].Points {
		byDefault, best := m.costs(sockets, p.Collective, p.Bytes)
		if p.Us["run"] < best*0.999 || p.Us["run"] > 0.95*byDefault {
			t.Errorf("%s %d: run takes %.2f us; the best is %.2f, NCCL's default %.2f", p.Collective, p.Bytes, p.Us["run"], best, byDefault)
		}
	}
	d := r.end.Daemons["run"]
	if d == nil || len(d.Status.Comms) != 1 {
		t.Fatalf("what the daemon of rank 0's host says: %+v", d)
	}
	if c := d.Status.Comms[0]; c.Hosts != "met" || c.RanksJoined != 1 || c.PlanVersion < 10 || c.PlanAgreed+3 < c.PlanVersion || d.Status.Core.Agreed < c.PlanVersion/2 {
		t.Errorf("published and agreed: %+v", c)
	}
	if c := d.Status.Core; c.Elsewhere < 2*c.Groups || 5*c.Incomplete > 2*c.Groups { // 4 to 18% on a machine that does nothing else, 28% on one that does
		t.Errorf("%d samples of ranks elsewhere, %d calls of 3 such ranks, %d incomplete", c.Elsewhere, c.Groups, c.Incomplete)
	}
	if t.Failed() {
		t.Logf("%s\n%+v", said, r.end.Daemons["run"])
	}
}
