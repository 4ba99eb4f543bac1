package paired

import (
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"dynamiccl/cmd/dynamiccld/internal/forced"
)

// How a comparison ends that does not come to its end: what cannot be begun, faults, signals.

// A daemon that dies makes its arm another: the run ends and says so.
func TestLiveDaemonDies(t *testing.T) {
	m := newMachine(t, "h200x4-nvlink-quiet")
	m.kill = "dynamiccld serve"
	said, code := m.bench("phase 1 of 1", syscall.SIGKILL, "--collectives", "AllReduce", "--sizes", "1K", "--phases", "quiet:30s")
	if r := m.read(); code != 1 || !strings.Contains(said, "arm run: daemon") || !strings.Contains(said, "has ended") || len(r.phases) != 1 || r.phases[0].Detector["run"].Error == "" {
		t.Errorf("exit code %d, %d phases\n%s", code, len(r.phases), said)
	}
}

func TestLiveFaults(t *testing.T) {
	for what, c := range map[string]struct {
		fault string
		says  []string
		wrong bool
	}{
		"wrong":          {"wrong:rank=2,collective=AllReduce,bytes=65536,from=200", []string{"rank 2: AllReduce of 65536 bytes", "wrong results"}, true},
		"a rank's death": {"die:rank=3,from=500,once=DIR/died", []string{"rank 3: a rank's process ended", "AllReduce"}, false},
		"a rank hangs":   {"hang:rank=1,from=500,to=501", []string{"no answer in time", "--time stream"}, false},
		"a call fails":   {"fail:rank=0,from=500", []string{"rank 0: a rank failed", "FAKEGPU_FAULT says"}, false},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, "h200x4-nvlink-quiet")
			timeout := "1m" // as long as ranks may need on a busy machine, but where one never answers
			if strings.HasPrefix(c.fault, "hang:") {
				timeout = "2s"
			}
			m.environ = append(m.environ, "FAKEGPU_FAULT="+strings.ReplaceAll(c.fault, "DIR", m.dir))
			said, code := m.bench("", 0, "--collectives", "AllReduce", "--sizes", "1K,64K", "--phases", "quiet:1s", "--timeout", timeout, "--time", "gpu")
			if code != 1 {
				t.Errorf("exit code %d\n%s", code, said)
			}
			for _, text := range append(c.says, "arm ") {
				if !strings.Contains(said, text) {
					t.Errorf("it does not say %q\n%s", text, said)
				}
			}
			r := m.read()
			if r.end.Error == "" || c.wrong != (r.end.Wrong["plain"] > 0 && r.end.Wrong["run"] > 0) || len(r.phases) != 1 {
				t.Errorf("%d phases, the end: %+v", len(r.phases), r.end)
			}
		})
	}
}

func TestLiveStopped(t *testing.T) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // else the program inherits that these tests run under nohup
	defer signal.Stop(hangups)
	args := []string{"--collectives", "AllReduce", "--sizes", "1K", "--phases", "network:50s,quiet:50s", "--load-size", "1", "--time", "stream"}
	var m *machine
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP} { // Ctrl-C and a lost connection
		m = newMachine(t, "h200x4-nvlink-quiet")
		said, code := m.bench("phase 1 of 2", signal, args...)
		r := m.read()
		if code != 1 || !strings.Contains(said, "stopped") || len(r.phases) != 1 || !r.end.Stopped || r.phases[0].Seconds > 20 {
			t.Errorf("%v: exit code %d, %d phases, %+v\n%s", signal, code, len(r.phases), r.end, said)
		}
		if left, err := filepath.Glob("/dev/shm/" + forced.ScratchPrefix + "*"); err != nil || ofThisTest(left, r) {
			t.Errorf("%v: left: %v, %v", signal, left, err)
		}
	}
	m.bench("phase 1 of 2", syscall.SIGKILL, args...) // and nothing outlives that either
}

// `bench 2>&1 | head`, or a tee that went with its connection: what is measured is in the file all the same.
func TestLiveNobodyReads(t *testing.T) {
	m := newMachine(t, "h200x4-nvlink-quiet")
	reads, writes, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := m.command(t.Context(), "--collectives", "AllReduce", "--sizes", "1K", "--phases", "quiet:1s")
	cmd.Stdout, cmd.Stderr = writes, writes
	if err := errors.Join(reads.Close(), cmd.Start(), writes.Close()); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // with which code it ends, the shell says of the last of a pipe
	m.alone()
	if r := m.read(); len(r.phases) != 1 || r.end.Stopped { // that the report went nowhere is an error
		t.Errorf("%d phases, the end: %+v; %v", len(r.phases), r.end, cmd.ProcessState)
	}
}

// ofThisTest says that one of the folders is that of the result's daemon.
func ofThisTest(folders []string, r result) bool {
	for _, f := range folders {
		if strings.HasPrefix(r.end.Daemons["run"].Status.Dir, f+"/") {
			return true
		}
	}
	return false
}

func TestLiveWhatCannotBe(t *testing.T) {
	m := newMachine(t, "h200x4-nvlink-quiet")
	good := m.environ
	for _, c := range []struct {
		what    string
		environ string
		args    []string
		code    int
		says    string
	}{
		{"arms", "", []string{"--arms", "plain,fast"}, 2, `--arms: "fast": want plain`},
		{"learner of an arm", "", []string{"--arms", "plain,run:wizard"}, 2, "wizard"},
		{"phases", "", []string{"--phases", "noise:5s"}, 2, "--phases"},
		{"nodes", "", []string{"--nodes", "3"}, 2, "same number of ranks"},
		{"the user's choice", "NCCL_ALGO=Ring", nil, 1, "NCCL_ALGO=Ring"},
		{"no plugin", "", []string{"--plugin-dir", m.dir}, 1, "make plugin"},
		{"too few GPUs", "FAKEGPU_GPUS=1", nil, 1, "rank 1"},
		{"no folder for results", "", []string{"--out", m.path("none/out.jsonl")}, 1, "--out"},
		{"no store", "", []string{"--store", m.path("none/store/s.db"), "--arms", "plain,plugin"}, 2, "one arm's"},
		{"no file for a store", "", []string{"--store", m.dir}, 1, "not a DynamICCL store"},
	} {
		m.environ = good
		if c.environ != "" {
			m.environ = append([]string{c.environ}, good...)
		}
		said, code := m.bench("", 0, append([]string{"--sizes", "1K", "--phases", "quiet:1s"}, c.args...)...)
		if code != c.code || !strings.Contains(said, c.says) {
			t.Errorf("%s: exit code %d, want %d and %q\n%s", c.what, code, c.code, c.says, said)
		}
	}
}

// What a daemon could not write of its trace is said, and does not end the comparison.
func TestLiveTraceThatEnds(t *testing.T) {
	m := newMachine(t, "h200x4-nvlink-quiet")
	said, code := m.bench("", 0, "--collectives", "AllReduce", "--sizes", "1K", "--phases", "quiet:1s", "--trace", "/dev/full")
	if code != 0 || !strings.Contains(said, "arm run: the trace ended early: write /dev/full: no space left on device") {
		t.Errorf("exit code %d:\n%s", code, said)
	}
	if end := m.read().end; end.Daemons["run"].Status.TraceError == "" {
		t.Error("the file does not say that the trace ended")
	}
}
