package paired

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"dynamiccl/actions"
	"dynamiccl/internal/testproc"
	"dynamiccl/state"
	"dynamiccl/tuner/tunersim"
)

// checkout is the root of what `make` built.
const checkout = "../../../.."

// mostTime is what one comparison of a test may take.
const mostTime = 8 * time.Minute

// machine is a machine with stand-ins for GPUs and NCCL, with the real plugin, ranks, daemons and bench on it.
type machine struct {
	*testing.T
	root, dir string
	environ   []string
	kill      string // the signal is for the process of this command line, not for the bench
}

func newMachine(t *testing.T, table string, environ ...string) *machine {
	t.Helper()
	root, err := filepath.Abs(checkout)
	if err != nil {
		t.Fatal(err)
	}
	fake := filepath.Join(root, ".cache", "fakegpu")
	for _, path := range []string{"bin/dynamiccld", "bin/dynamiccl-worker", "lib/libnccl-tuner-dynamiccl.so", ".cache/fakegpu/libnccl.so.2"} {
		if _, err := os.Stat(filepath.Join(root, path)); err != nil {
			t.Fatalf("%v; run `make all fakegpu` first", err)
		}
	}
	m := &machine{T: t, root: root, dir: t.TempDir()}
	// The plugin reads the host's clock: the stand-in's must come before libc's.
	m.environ = append([]string{"PATH=/usr/bin:/bin", "DYNAMICCL_NO_KERNELS=1", "HOME=" + m.dir, "TMPDIR=" + m.dir, "FAKEGPU_DIR=" + m.dir, "LD_LIBRARY_PATH=" + fake,
		"LD_PRELOAD=" + filepath.Join(fake, "libnccl.so.2"), "FAKEGPU_TABLE=" + m.recorded(table)}, environ...)
	return m
}

// fatbin is a file of kernels.
func fatbin(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kernels.fatbin")
	if err := os.WriteFile(file, []byte{0x50, 0xed, 0x55, 0xba}, 0o600); err != nil { // all that the stand-in for CUDA looks at
		t.Fatal(err)
	}
	return file
}

func (m *machine) recorded(table string) string {
	return filepath.Join(m.root, "tuner", "tunersim", "testdata", "measurements", table+".csv")
}

func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

func (m *machine) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(m.root, "bin", "dynamiccld"), append([]string{"bench", "--ranks", "4", "--out", m.path("out.jsonl")}, args...)...)
	cmd.Dir, cmd.Env = m.dir, m.environ
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// bench runs one to its end, or ends it with a signal once it says the text.
func (m *machine) bench(when string, signal syscall.Signal, args ...string) (said string, code int) {
	m.Helper()
	ctx, cancel := context.WithTimeout(m.Context(), mostTime)
	defer cancel()
	cmd := m.command(ctx, args...)
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	stderr, err := cmd.StderrPipe()
	if err != nil {
		m.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		m.Fatal(err)
	}
	var heard strings.Builder
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		heard.WriteString(lines.Text() + "\n")
		if when != "" && strings.Contains(lines.Text(), when) {
			time.AfterFunc(time.Second, func() { _ = syscall.Kill(m.target(cmd), signal) })
		}
	}
	if exit := new(exec.ExitError); !errors.As(cmd.Wait(), &exit) && !cmd.ProcessState.Success() {
		m.Fatal(cmd.ProcessState)
	}
	if ctx.Err() != nil {
		m.Fatalf("not done within %v:\n%s", mostTime, heard.String())
	}
	m.alone()
	return stdout.String() + heard.String(), cmd.ProcessState.ExitCode()
}

// daemonWaits gives the longest that a thread of the test's daemons waited for a CPU between two looks, a tenth of a second apart or more.
func (m *machine) daemonWaits(over <-chan struct{}) (longest time.Duration) {
	before := map[string]int64{}
	for {
		select {
		case <-over:
			return longest
		case <-time.After(100 * time.Millisecond):
		}
		for _, p := range testproc.With(m.T, "TMPDIR="+m.dir) {
			pid, name, _ := strings.Cut(p, " ")
			if name != "dynamiccld" {
				continue
			}
			threads, _ := filepath.Glob("/proc/" + pid + "/task/*/schedstat") // gone: none
			for _, t := range threads {
				var ran, waited int64
				text, _ := os.ReadFile(t)
				if _, err := fmt.Sscan(string(text), &ran, &waited); err != nil {
					continue
				}
				longest = max(longest, time.Duration(waited-before[t]))
				before[t] = waited
			}
		}
	}
}

// target is who gets a bench's signal: its process group, as of a terminal's Ctrl-C, or one process of this test.
func (m *machine) target(cmd *exec.Cmd) int {
	if m.kill == "" {
		return -cmd.Process.Pid
	}
	for _, p := range testproc.With(m.T, "TMPDIR="+m.dir) {
		var pid int
		if _, err := fmt.Sscan(p, &pid); err != nil {
			continue
		}
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && strings.Contains(strings.ReplaceAll(string(line), "\x00", " "), m.kill) {
			return pid
		}
	}
	return cmd.Process.Pid // what is asserted then fails
}

// result is what a file holds.
type result struct {
	head   Head
	rounds []Rounds
	phases []PhaseSummary
	end    *End
}

func (m *machine) read() (r result) {
	m.Helper()
	text, err := os.ReadFile(m.path("out.jsonl"))
	if err != nil {
		m.Fatal(err)
	}
	if len(text) > 1<<20 {
		m.Errorf("%d bytes of results", len(text))
	}
	for line := range bytes.Lines(text) {
		var kind struct {
			Kind string `json:"kind"`
		}
		if err := json.Unmarshal(line, &kind); err != nil {
			m.Fatalf("%v in %q", err, line)
		}
		var rounds Rounds
		var phase PhaseSummary
		into := map[string]any{kindHead: &r.head, kindRounds: &rounds, kindPhase: &phase, kindEnd: &r.end}[kind.Kind]
		if err := json.Unmarshal(line, into); err != nil {
			m.Fatalf("%v in %q", err, line)
		}
		switch kind.Kind {
		case kindRounds:
			r.rounds = append(r.rounds, rounds)
		case kindPhase:
			r.phases = append(r.phases, phase)
		}
	}
	if r.end == nil {
		m.Fatal("the last line is not there")
	}
	return r
}

// costs are NCCL's default and the best choice of a recorded table, in us.
func (m *machine) costs(table, collective string, bytes uint64) (byDefault, best float64) {
	m.Helper()
	f, err := os.Open(m.recorded(table))
	if err != nil {
		m.Fatal(err)
	}
	defer f.Close()
	t, err := tunersim.ReadTable(f)
	if err != nil {
		m.Fatal(err)
	}
	c, err := actions.ParseCollective(collective)
	if err != nil {
		m.Fatal(err)
	}
	bucket, _ := state.BucketOf(c, bytes)
	byDefault, _ = t.Default(bucket)
	_, best, ok := t.Best(bucket)
	if !ok || byDefault == 0 {
		m.Fatalf("%s of %d bytes is not in %s", collective, bytes, table)
	}
	return byDefault / 1000, best / 1000
}

// alone checks that no process of a bench lives on and nothing of it is left in memory.
func (m *machine) alone() {
	m.Helper()
	testproc.NoneLeft(m.T, "TMPDIR="+m.dir, 30*time.Second)
}
