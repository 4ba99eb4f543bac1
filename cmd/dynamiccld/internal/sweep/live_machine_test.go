package sweep

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"dynamiccl/internal/testproc"
)

// checkout is the root of what `make` built.
const checkout = "../../../.."

// machine is a machine with stand-ins for GPUs and NCCL, with the real plugin, ranks and sweep on it.
type machine struct {
	*testing.T
	root, dir string
	environ   []string
	took      time.Duration // of the last sweep
}

func newMachine(t *testing.T, table string, environ ...string) *machine {
	t.Helper()
	root, err := filepath.Abs(checkout)
	if err != nil {
		t.Fatal(err)
	}
	lib := filepath.Join(root, ".cache", "fakegpu")
	for _, path := range []string{"bin/dynamiccld", "bin/dynamiccl-worker", "lib/libnccl-tuner-dynamiccl.so", ".cache/fakegpu/libnccl.so.2"} {
		if _, err := os.Stat(filepath.Join(root, path)); err != nil {
			t.Fatalf("%v; run `make all fakegpu` first", err)
		}
	}
	m := &machine{T: t, root: root, dir: t.TempDir()}
	m.environ = append([]string{"PATH=/usr/bin:/bin", "DYNAMICCL_NO_KERNELS=1", "HOME=" + m.dir, "TMPDIR=" + m.dir, "FAKEGPU_DIR=" + m.dir, "LD_LIBRARY_PATH=" + lib,
		"FAKEGPU_TABLE=" + m.recorded(table)}, environ...)
	return m
}

func (m *machine) recorded(table string) string {
	return filepath.Join(m.root, "tuner", "tunersim", "testdata", "measurements", table+".csv")
}

func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

// command is a sweep in a process group of its own, as a shell's job is.
func (m *machine) command(args ...string) (*exec.Cmd, *bytes.Buffer) {
	cmd := exec.Command(filepath.Join(m.root, "bin", "dynamiccld"), append([]string{"sweep", "--timeout", "2m"}, args...)...)
	cmd.Dir, cmd.Env = m.dir, m.environ
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	said := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = said, said
	return cmd, said
}

// sweep runs one to its end.
func (m *machine) sweep(args ...string) (said string, code int) {
	m.Helper()
	cmd, out := m.command(args...)
	began := time.Now()
	err := cmd.Run()
	m.took = time.Since(began)
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		m.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// must runs one that has to work.
func (m *machine) must(args ...string) string {
	m.Helper()
	said, code := m.sweep(args...)
	if code != 0 {
		m.Fatalf("sweep %v: exit code %d\n%s", args, code, said)
	}
	return said
}

// medians are the rows of a table, with all values of the default.
func (m *machine) medians(path string) map[string][]string {
	m.Helper()
	f, err := os.Open(path)
	if err != nil {
		m.Fatal(err)
	}
	defer f.Close()
	all, err := csv.NewReader(f).ReadAll()
	if err != nil || len(all) < 2 || !slices.Equal(all[0], tableColumns) {
		m.Fatalf("%s: %d rows, %v", path, len(all), err)
	}
	rows := map[string][]string{}
	for _, r := range all[1:] {
		key := strings.Join(r[6:12], " ")
		rows[key] = append(rows[key], r[12])
	}
	return rows
}

// same holds a measured table against the recorded one, in every row of the collectives and sizes that it has.
func (m *machine) same(path, recorded string, atLeast int) {
	m.Helper()
	got, want := m.medians(path), m.medians(m.recorded(recorded))
	n := 0
	for key, us := range got {
		if strings.HasPrefix(key, AllToAll) {
			continue
		}
		if strings.Contains(key, "default") {
			if len(us) != 3 || us[0] != us[1] || us[0] != us[2] {
				m.Errorf("%s: %v us, want the same three times", key, us)
			}
		} else if !slices.Equal(us, want[key]) {
			m.Errorf("%s: %v us, recorded %v", key, us, want[key])
		}
		n++
	}
	if n < atLeast {
		m.Errorf("%s: %d choices, want at least %d", path, n, atLeast)
	}
	readTable(m.T, path)
}

// alone checks that nothing of a sweep lives on and no shared memory is left.
func (m *machine) alone() {
	m.Helper()
	testproc.NoneLeft(m.T, "TMPDIR="+m.dir, 30*time.Second)
}

// killed runs a sweep until its journal has so many lines and then sends the signal.
func (m *machine) killed(lines int, signal syscall.Signal, args ...string) (said string, state *os.ProcessState) {
	m.Helper()
	cmd, out := m.command(args...)
	if err := cmd.Start(); err != nil {
		m.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(m.Context(), 4*time.Minute)
	defer cancel()
	for {
		text, err := os.ReadFile(m.path("t.points.jsonl"))
		if err == nil && bytes.Count(text, []byte("\n")) >= lines {
			break
		}
		if ctx.Err() != nil {
			_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
			_ = cmd.Wait() // killed
			m.Fatalf("%d lines did not come in time:\n%s", lines, out)
		}
		time.Sleep(2 * time.Millisecond)
	}
	if err := unix.Kill(-cmd.Process.Pid, signal); err != nil { // a terminal's Ctrl-C goes to the group
		m.Fatal(err)
	}
	_ = cmd.Wait() // its end is what the caller looks at
	return out.String(), cmd.ProcessState
}
