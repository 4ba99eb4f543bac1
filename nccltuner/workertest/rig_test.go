package workertest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// replyLimit bounds the wait for one reply; only a rank that hangs takes as long.
const replyLimit = 2 * time.Minute

// usList is what "us" holds: one number of a call, one a replay of a measurement.
type usList []float64

func (u *usList) UnmarshalJSON(text []byte) error {
	var one float64
	if json.Unmarshal(text, &one) == nil {
		*u = usList{one}
		return nil
	}
	return json.Unmarshal(text, (*[]float64)(u))
}

// reply has the fields of all replies.
type reply struct {
	Error         string
	ID            string
	Ready, OK     bool
	NCCL          int
	GPU, UUID     string
	PCIBus        string `json:"pciBus"`
	DriverVersion int
	CommHash      string
	Us            usList
	Wrong         *int
	Grid          int
	CaptureUs     float64 `json:"capture_us"`
}

// logBuffer collects standard error while the process runs.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// worker is one process; lines of its standard output arrive in replies, which closes at their end.
type worker struct {
	t       *testing.T
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	replies chan string
	stderr  logBuffer
	waited  bool
}

// cleanEnv is the environment without what would choose plugins, libraries or faults, and with the stand-ins found first.
func cleanEnv(more ...string) []string {
	var env []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if !strings.HasPrefix(name, "NCCL_") && !strings.HasPrefix(name, "DYNAMICCL_") && !strings.HasPrefix(name, "FAKEGPU_") && name != "LD_LIBRARY_PATH" {
			env = append(env, v)
		}
	}
	return append(append(env, "LD_LIBRARY_PATH="+build), more...)
}

func startWorker(t *testing.T, env []string, args ...string) *worker {
	t.Helper()
	w := &worker{t: t, replies: make(chan string, 64)}
	w.cmd = exec.Command(filepath.Join(build, "dynamiccl-worker"), args...)
	w.cmd.Env, w.cmd.Stderr = env, &w.stderr
	stdin, err := w.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	w.stdin = stdin
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(w.replies)
		lines := bufio.NewReader(stdout)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			w.replies <- line
		}
	}()
	t.Cleanup(func() {
		_ = w.cmd.Process.Kill() // most have ended by themselves
		w.wait()
		if t.Failed() {
			t.Logf("worker %v said:\n%s", args, &w.stderr)
		}
	})
	return w
}

// wait gives the exit code, -1 for a killed process.
func (w *worker) wait() int {
	if !w.waited {
		for range w.replies { // the pipe must be read to its end before Wait closes it
		}
		_ = w.cmd.Wait() // a code other than 0 is a result here
		w.waited = true
	}
	return w.cmd.ProcessState.ExitCode()
}

func (w *worker) send(line string) {
	w.t.Helper()
	if _, err := io.WriteString(w.stdin, line+"\n"); err != nil {
		w.t.Fatalf("sending %s: %v\n%s", line, err, &w.stderr)
	}
}

// receive gives the next reply; false: the worker ended, or said nothing within limit.
func (w *worker) receive(limit time.Duration) (reply, bool) {
	w.t.Helper()
	select {
	case line, ok := <-w.replies:
		if !ok {
			return reply{}, false
		}
		var r reply
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			w.t.Fatalf("reply %q: %v", line, err)
		}
		return r, true
	case <-time.After(limit):
		return reply{}, false
	}
}

// ask wants a reply, which may be an error.
func (w *worker) ask(line string) reply {
	w.t.Helper()
	w.send(line)
	r, ok := w.receive(replyLimit)
	if !ok {
		w.t.Fatalf("no reply to %s\n%s", line, &w.stderr)
	}
	return r
}

// group is the ranks of one communicator, or of several.
type group []*worker

// startGroup starts n ranks; env(rank) is added to the clean environment.
func startGroup(t *testing.T, n int, env func(rank int) []string, args ...string) group {
	t.Helper()
	var g group
	for r := range n {
		own := []string{"--rank", fmt.Sprint(r), "--ranks", fmt.Sprint(n), "--device", fmt.Sprint(r), "--max-bytes", fmt.Sprint(8 << 20)}
		g = append(g, startWorker(t, cleanEnv(env(r)...), append(own, args...)...))
	}
	return g
}

// ask sends a line to all ranks and wants a reply without error of each.
func (g group) ask(line string) []reply {
	g[0].t.Helper()
	for _, w := range g {
		w.send(line)
	}
	var out []reply
	for rank, w := range g {
		r, ok := w.receive(replyLimit)
		if !ok || r.Error != "" {
			w.t.Fatalf("rank %d, %s: reply %v, error %q\n%s", rank, line, ok, r.Error, &w.stderr)
		}
		out = append(out, r)
	}
	return out
}

// init makes a communicator.
func (g group) init() []reply {
	g[0].t.Helper()
	return g.initAll(1)
}

// initAll makes n communicators of the same ranks.
func (g group) initAll(n int) []reply {
	g[0].t.Helper()
	ids := ""
	for range n {
		ids += g[0].ask(`{"do":"id"}`).ID
	}
	return g.ask(fmt.Sprintf(`{"do":"init","id":"%s"}`, ids))
}

func (g group) bye() {
	g[0].t.Helper()
	for rank, w := range g {
		w.send(`{"do":"bye"}`)
		if code := w.wait(); code != 0 {
			w.t.Errorf("rank %d: exit code %d after bye\n%s", rank, code, &w.stderr)
		}
	}
}

func callLine(collective string, bytes, calls int) string {
	return fmt.Sprintf(`{"do":"call","collective":"%s","bytes":%d,"calls":%d}`, collective, bytes, calls)
}

func measureLine(collective string, bytes int, mode string, calls, replays, least int, warmUs, budgetUs float64) string {
	return fmt.Sprintf(`{"do":"measure","collective":"%s","bytes":%d,"mode":"%s","calls":%d,"replays":%d,"min_replays":%d,"warm_us":%g,"budget_us":%g}`,
		collective, bytes, mode, calls, replays, least, warmUs, budgetUs)
}
