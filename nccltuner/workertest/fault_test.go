package workertest

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"dynamiccl/actions"
	"dynamiccl/nccltuner"
	"dynamiccl/state"
)

// A wrong element is counted on the rank that has it, in calls and in graphs, and ends nothing.
func TestWrongResult(t *testing.T) {
	g := startGroup(t, 2, sameEnv("FAKEGPU_TABLE="+writeTable(t, 2, 1), "FAKEGPU_FAULT=wrong:rank=1,collective=AllGather,bytes=65536"))
	g.init()
	for _, line := range []string{callLine("AllGather", 65536, 2), measureLine("AllGather", 65536, "graph", 2, 2, 2, 0, 0),
		measureLine("AllGather", 65536, "stream", 2, 2, 2, 0, 0)} {
		for rank, r := range g.ask(line) {
			if r.Wrong == nil || *r.Wrong != rank {
				t.Errorf("rank %d, %s: %+v, want %d wrong elements", rank, line, r, rank)
			}
		}
	}
	if said := g[1].stderr.String(); !strings.Contains(said, "AllGather of 65536 bytes: element 0 is bf16 0x") {
		t.Errorf("standard error does not say what is wrong: %q", said)
	}
	allRight(t, "another size", g.ask(callLine("AllGather", 1024, 2)))
	g.bye()
}

// A result that is not written is wrong although the one before, which was right, still stands there.
func TestResultThatIsNotWritten(t *testing.T) {
	const bytes, calls = 65536, 2
	for _, line := range []string{callLine("AllReduce", bytes, calls), measureLine("AllReduce", bytes, "graph", calls, 2, 2, 0, 0)} {
		// Call 0 is the ranks' own when they meet.
		g := startGroup(t, 2, sameEnv("FAKEGPU_TABLE="+writeTable(t, 2, 1), fmt.Sprintf("FAKEGPU_FAULT=skip:rank=1,from=%d", 1+calls)))
		g.init()
		allRight(t, "before", g.ask(callLine("AllReduce", bytes, calls)))
		for rank, r := range g.ask(line) {
			if r.Wrong == nil || *r.Wrong != rank*bytes/2 {
				t.Errorf("rank %d, %s: %+v", rank, line, r)
			}
		}
	}
}

// Faults can be bound to what runs: here to the choice that a user's NCCL_ALGO makes.
func TestWrongResultOfAChoice(t *testing.T) {
	for algorithm, want := range map[string]int{"Tree": 1, "Ring": 0} {
		g := startGroup(t, 2, sameEnv("FAKEGPU_TABLE="+writeTable(t, 2, 1), "NCCL_ALGO="+algorithm, "FAKEGPU_FAULT=wrong:algorithm=TREE"))
		g.init()
		for rank, r := range g.ask(callLine("AllReduce", 65536, 2)) {
			if r.Wrong == nil || *r.Wrong != want {
				t.Errorf("%s, rank %d: %+v, want %d wrong elements", algorithm, rank, r, want)
			}
		}
	}
}

// An error of NCCL's is told with the call, its name, what NCCL said and what to do, and ends the worker.
func TestFailingCall(t *testing.T) {
	for _, line := range []string{callLine("AllReduce", 1024, 4), measureLine("AllReduce", 1024, "graph", 4, 2, 2, 0, 0)} {
		g := startGroup(t, 2, sameEnv("FAKEGPU_TABLE="+writeTable(t, 2, 1), "FAKEGPU_FAULT=fail:from=3"))
		g.init()
		for rank, w := range g {
			w.send(line)
			r, ok := w.receive(replyLimit)
			want := "ncclAllReduce: unhandled system error (2): FAKEGPU_FAULT says that call 3 fails: NCCL_DEBUG=INFO makes NCCL say more, on standard error"
			if !ok || r.Error != want {
				t.Errorf("rank %d: %+v, want %q", rank, r, want)
			}
			if code := w.wait(); code != 1 {
				t.Errorf("rank %d: exit code %d", rank, code)
			}
		}
	}
}

// A choice that was not recorded has no time: an error and not a guess.
func TestChoiceThatWasNotRecorded(t *testing.T) {
	env, dir := pluginEnv(t)
	table := writeTable(t, 4, 4) // one GPU a node: NCCL may run PAT, which the table has not
	g := startGroup(t, 4, func(rank int) []string {
		return append(slices.Clone(env), "FAKEGPU_TABLE="+table, fmt.Sprintf("NCCL_HOSTID=node%d", rank))
	})
	g.init()
	f := newForcer(t, dir, 4)
	bucket, _ := state.BucketOf(actions.AllGather, 65536)
	pat := actions.Action{Path: actions.PathCollective, Algorithm: actions.PAT, Protocol: actions.Simple}
	if _, err := f.publisher.Publish(&nccltuner.PlanSpec{Entries: []nccltuner.EntrySpec{{Bucket: bucket, ID: 1, Base: pat.Word()}}}); err != nil {
		t.Fatal(err)
	}
	for rank, w := range g {
		w.send(callLine("AllGather", 65536, 40))
		r, ok := w.receive(replyLimit)
		if !ok || !strings.Contains(r.Error, "ncclAllGather: internal error (3): table ") || !strings.Contains(r.Error, "no cost of AllGather PAT/SIMPLE near 65536 bytes") {
			t.Errorf("rank %d: %+v", rank, r)
		}
	}
}

// A rank that dies leaves the others waiting, as NCCL does; killed and started again they go on.
func TestDeathAndHang(t *testing.T) {
	for _, fault := range []string{"die", "hang"} {
		once := filepath.Join(t.TempDir(), "once")
		env := sameEnv("FAKEGPU_TABLE="+writeTable(t, 2, 1), "FAKEGPU_FAULT="+fault+":rank=1,collective=AllReduce,bytes=65536,once="+once)
		g := startGroup(t, 2, env)
		g.init()
		allRight(t, "another size", g.ask(callLine("AllReduce", 1024, 2)))
		for _, w := range g {
			w.send(measureLine("AllReduce", 65536, "graph", 4, 2, 2, 0, 0))
		}
		for rank, w := range g {
			if r, ok := w.receive(300 * time.Millisecond); ok {
				t.Errorf("%s: rank %d replies %+v", fault, rank, r)
			}
		}
		if fault == "die" {
			if code := g[1].wait(); code != -1 {
				t.Errorf("rank 1: exit code %d", code)
			}
		}
		for _, w := range g {
			_ = w.cmd.Process.Kill() // rank 1 may be dead already
		}
		again := startGroup(t, 2, env)
		again.init()
		allRight(t, "after the fault", again.ask(callLine("AllReduce", 65536, 2)))
		again.bye()
	}
}

// Nothing of a communicator stays in the shared memory's folder, and a wrong FAKEGPU_FAULT is no silence.
func TestStandInsTidyUp(t *testing.T) {
	dir := t.TempDir()
	g := startGroup(t, 2, sameEnv("FAKEGPU_TABLE="+writeTable(t, 2, 1), "FAKEGPU_DIR="+dir))
	g.init()
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 0 {
		t.Errorf("%v, %v are left", left, err)
	}
	w := startGroup(t, 2, sameEnv("FAKEGPU_TABLE="+writeTable(t, 2, 1), "FAKEGPU_FAULT=gremlins:rank=1"))[0]
	r := w.ask(fmt.Sprintf(`{"do":"init","id":"%s"}`, strings.Repeat("00", 128)))
	if !strings.Contains(r.Error, "ncclCommInitRank: invalid argument (4): FAKEGPU_FAULT: want KIND") || w.wait() != 1 {
		t.Errorf("%+v", r)
	}
}
