package workertest

import (
	"fmt"
	"path/filepath"
	"testing"
)

// Graphs of several communicators are captured at once, by a thread each, and replayed one behind the other: each call takes what the table
// says, and every result is right.
func TestGraphsOfSeveralCommunicators(t *testing.T) {
	const comms, calls = 3, 5
	env, dir := pluginEnv(t)
	g := startGroup(t, 2, sameEnv(append(env, "FAKEGPU_TABLE="+writeTable(t, 2, 1), fmt.Sprint("FAKEGPU_CAPTURES=", comms))...))
	for range 2 { // a communicator that is gone leaves nothing to the next
		if hash := g.initAll(comms)[0].CommHash; len(hash) != 16 {
			t.Errorf("hash %q", hash)
		}
		if records, err := filepath.Glob(filepath.Join(dir, "comm-*.shm")); err != nil || len(records) != comms {
			t.Errorf("records %v, %v", records, err)
		}
		for _, collective := range append([]string{"AllToAll"}, tableCollectives...) {
			what := fmt.Sprintf("%s of %d communicators", collective, comms)
			allRight(t, what, g.ask(callLine(collective, 65536, 3)))
			replies := g.ask(measureLine(collective, 65536, "graph", calls, 7, 7, 0, 0))
			allRight(t, what, replies)
			for _, r := range replies {
				near(t, what, r.Us, defaultUs(collective, 65536))
				if len(r.Us) != 7 || r.Grid == 0 || r.CaptureUs <= 0 {
					t.Errorf("%s: %d replays, grid %d, captured in %g us", what, len(r.Us), r.Grid, r.CaptureUs)
				}
			}
		}
		for _, mode := range []string{"stream", "free", "host"} {
			for rank, w := range g {
				want := fmt.Sprintf(`mode "%s": with %d communicators want graph; init with one id for others`, mode, comms)
				if r := w.ask(measureLine("AllReduce", 65536, mode, calls, 7, 7, 0, 0)); r.Error != want {
					t.Errorf("rank %d: %q, want %q", rank, r.Error, want)
				}
			}
		}
		g.ask(`{"do":"destroy"}`)
	}
	g.init()
	allRight(t, "one communicator behind several", g.ask(callLine("AllReduce", 65536, 3)))
	g.bye()
}

// The graph of each communicator is checked by itself: what one does not write another's result does not hide.
func TestWrongResultOfAnyGraph(t *testing.T) {
	const comms, bytes = 3, 65536
	lines := []string{callLine("AllReduce", bytes, 2), measureLine("AllReduce", bytes, "graph", 2, 2, 2, 0, 0)}
	for comm := range comms {
		// The first one's call 0 is the ranks' own when they meet; of two calls the last one counts.
		g := startGroup(t, 2, sameEnv("FAKEGPU_TABLE="+writeTable(t, 2, 1), fmt.Sprintf("FAKEGPU_FAULT=skip:rank=1,comm=%d,from=1", comm)))
		g.initAll(comms)
		for _, line := range lines {
			for rank, r := range g.ask(line) {
				if r.Wrong == nil || *r.Wrong != rank*bytes/2 {
					t.Errorf("communicator %d, rank %d, %s: %+v", comm, rank, line, r)
				}
			}
		}
		g.bye()
	}
	g := startGroup(t, 2, sameEnv("FAKEGPU_TABLE="+writeTable(t, 2, 1), "FAKEGPU_FAULT=wrong:rank=1"))
	g.initAll(comms)
	for _, line := range lines {
		for rank, r := range g.ask(line) {
			if r.Wrong == nil || *r.Wrong != rank*comms {
				t.Errorf("%s: rank %d: %+v, want the sum of the communicators'", line, rank, r)
			}
		}
	}
	g.bye()
}

// An error in one capture, of any communicator, is told, and the other threads are not waited for in vain.
func TestFailingCapture(t *testing.T) {
	const comms = 3
	for comm := range comms {
		g := startGroup(t, 2, sameEnv("FAKEGPU_TABLE="+writeTable(t, 2, 1), fmt.Sprintf("FAKEGPU_FAULT=fail:comm=%d,from=1", comm)))
		g.initAll(comms)
		for _, w := range g {
			w.send(measureLine("AllReduce", 1024, "graph", 2, 2, 2, 0, 0))
		}
		for rank, w := range g {
			r, ok := w.receive(replyLimit)
			want := "ncclAllReduce: unhandled system error (2): FAKEGPU_FAULT says that call 1 fails: NCCL_DEBUG=INFO makes NCCL say more, on standard error"
			if code := w.ended("after a failure"); !ok || r.Error != want || code != 1 {
				t.Errorf("communicator %d, rank %d: %q, exit code %d; want %q", comm, rank, r.Error, code, want)
			}
		}
	}
	// Captures that do not begin.
	g := startGroup(t, 2, sameEnv("FAKEGPU_TABLE="+writeTable(t, 2, 1), fmt.Sprint("FAKEGPU_CAPTURES=", comms+1)))
	g.initAll(comms)
	for rank, w := range g {
		w.send(measureLine("AllReduce", 1024, "graph", 2, 2, 2, 0, 0))
		if r, ok := w.receive(replyLimit); !ok || r.Error == "" || w.ended("after a failure") != 1 {
			t.Errorf("rank %d: %+v", rank, r)
		}
	}
}
