package workertest

import (
	"fmt"
	"strings"
	"testing"
)

// inNCCLMemory is measureLine's in buffers of NCCL's own.
func inNCCLMemory(collective string, bytes int, mode string) string {
	return strings.Replace(measureLine(collective, bytes, mode, 3, 3, 3, 0, 0), `"calls"`, `"memory":"nccl","calls"`, 1)
}

// A measurement in memory of NCCL's own is one of calls between such buffers, whose results are right, and leaves the ranks' own
// buffers what they were. NCCL registers such memory in graphs alone.
func TestNCCLMemory(t *testing.T) {
	g := startGroup(t, 2, sameEnv("FAKEGPU_TABLE="+writeTable(t, 2, 1), "FAKEGPU_GRAPH_REGISTER=0.5"))
	g.init()
	for _, collective := range append([]string{"AllToAll"}, tableCollectives...) {
		for _, bytes := range []int{1024, 65536} {
			all := defaultUs(collective, bytes)
			for _, c := range []struct {
				line string
				us   float64
			}{{inNCCLMemory(collective, bytes, "graph"), all / 2}, {measureLine(collective, bytes, "graph", 3, 3, 3, 0, 0), all},
				{inNCCLMemory(collective, bytes, "stream"), all}} {
				replies := g.ask(c.line)
				allRight(t, c.line, replies)
				for _, r := range replies {
					near(t, c.line, r.Us, c.us)
				}
			}
			allRight(t, "in the ranks' buffers", g.ask(callLine(collective, bytes, 2)))
		}
	}
	g.bye()
}

// Where one rank gets no such memory all of them say so, none waits for another, and the communicator is as before.
func TestNoNCCLMemory(t *testing.T) {
	g := startGroup(t, 2, func(rank int) []string {
		return []string{"FAKEGPU_TABLE=" + writeTable(t, 2, 1), "FAKEGPU_GRAPH_REGISTER=" + []string{"0.5", "refuse"}[rank]}
	})
	g.init()
	for range 2 {
		for _, w := range g {
			w.send(inNCCLMemory("AllReduce", 1024, "graph"))
		}
		for rank, w := range g {
			want := fmt.Sprintf(`memory "nccl": a rank's ncclMemAlloc of twice %d bytes failed`, 8<<20)
			if r, ok := w.receive(replyLimit); !ok || r.Error != want {
				t.Fatalf("rank %d: %v, %q, want %q", rank, ok, r.Error, want)
			}
		}
	}
	allRight(t, "afterwards", g.ask(measureLine("AllReduce", 1024, "graph", 2, 2, 2, 0, 0)))
	g.bye()
}
