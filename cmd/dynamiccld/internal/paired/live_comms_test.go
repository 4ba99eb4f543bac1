package paired

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// Graphs of three communicators that are captured at the same moment replay as plain NCCL's, with a window of sampling open whenever a
// capture begins, and also where NCCL is asked to time its kernels, which a graph would keep for ever (FAKEGPU's cost of that is 30 us).
func TestLiveGraphsOfSeveralCommunicators(t *testing.T) {
	const comms, table, timed = 3, "h200x4-nvlink-quiet", "observe+DYNAMICCL_KERNEL_EVENTS=1"
	m := newMachine(t, table, fmt.Sprint("FAKEGPU_CAPTURES=", comms))
	said, code := m.bench("", 0, "--comms", fmt.Sprint(comms), "--time", "graph", "--arms", "plain,plugin,observe,"+timed, "--collectives", "AllReduce,AllGather",
		"--sizes", "1K,64K", "--phases", "quiet:2s", "--min-rounds", "30", "--calls", "20", "--sample-every", "1")
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, said)
	}
	r := m.read()
	if len(r.phases) != 1 || len(r.phases[0].Points) != 4 || len(r.rounds) != 4 || r.phases[0].Rounds < 30 || r.head.Comms != comms || r.head.Time != TimeGraph {
		t.Fatalf("head %+v, %d phases, %d points\n%s", r.head, len(r.phases), len(r.rounds), said)
	}
	for _, p := range r.phases[0].Points {
		byDefault, _ := m.costs(table, p.Collective, p.Bytes)
		for arm, us := range p.Us {
			if math.Abs(us/byDefault-1) > 5e-3 {
				t.Errorf("%s %d: %s takes %.2f us, NCCL's default %.2f", p.Collective, p.Bytes, arm, us, byDefault)
			}
		}
	}
	// The daemons heard of the captured calls of every communicator, as many of each.
	for _, arm := range []string{"observe", timed} {
		d := r.end.Daemons[arm]
		if d == nil || d.Error != "" || len(d.Report.Comms) != comms {
			t.Fatalf("what the daemon of %s says: %+v", arm, d)
		}
		for _, c := range d.Report.Comms {
			if len(c.Captured) != 4 {
				t.Errorf("%s: communicator %s: captured %+v", arm, c.ID, c.Captured)
			}
			for i, one := range c.Captured {
				if other := d.Report.Comms[0].Captured[i]; one.Calls == 0 || one.Calls != other.Calls || one.Collective != other.Collective || one.MinBytes != other.MinBytes {
					t.Errorf("%s: communicator %s: captured %+v, another one %+v", arm, c.ID, one, other)
				}
			}
		}
	}
}

// What is wrong in the graph of any communicator is noticed.
func TestLiveWrongGraphOfACommunicator(t *testing.T) {
	for comm := range 3 {
		t.Run(fmt.Sprint(comm), func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, "h200x4-nvlink-quiet", fmt.Sprintf("FAKEGPU_FAULT=skip:rank=2,comm=%d,bytes=65536,from=100", comm))
			said, code := m.bench("", 0, "--comms", "3", "--time", "graph", "--arms", "plain,observe", "--collectives", "AllReduce", "--sizes", "1K,64K",
				"--phases", "quiet:1s", "--min-rounds", "20", "--calls", "20")
			r := m.read()
			if code != 1 || !strings.Contains(said, "rank 2: AllReduce of 65536 bytes: 32768 elements of the result are wrong") || !strings.Contains(said, "wrong results") {
				t.Errorf("exit code %d\n%s", code, said)
			}
			if r.end.Wrong["plain"] == 0 || r.end.Wrong["plain"]%32768 != 0 || r.end.Wrong["observe"] != r.end.Wrong["plain"] {
				t.Errorf("wrong elements %v", r.end.Wrong)
			}
		})
	}
}
