package calibrate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/workers"
	"dynamiccl/internal/testproc"
	"dynamiccl/nccltuner"
	"dynamiccl/state"
	"dynamiccl/tuner/store"
)

// checkout is the root of what `make` built.
const checkout = "../../../.."

// host is a machine with stand-ins for GPUs and NCCL, with the real plugin, ranks and programs on it.
type host struct {
	*testing.T
	root, dir string
	environ   []string
}

func newHost(t *testing.T, table string, environ ...string) *host {
	t.Helper()
	root, err := filepath.Abs(checkout)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"bin/dynamiccld", "bin/dynamiccl-worker", "lib/libnccl-tuner-dynamiccl.so", ".cache/fakegpu/libnccl.so.2"} {
		if _, err := os.Stat(filepath.Join(root, path)); err != nil {
			t.Fatalf("%v; run `make all fakegpu` first", err)
		}
	}
	h := &host{T: t, root: root, dir: t.TempDir()}
	h.environ = append([]string{"PATH=/usr/bin:/bin", "DYNAMICCL_NO_KERNELS=1", "HOME=" + h.dir, "TMPDIR=" + h.dir, "FAKEGPU_DIR=" + h.dir, "LD_LIBRARY_PATH=" + filepath.Join(root, ".cache", "fakegpu"),
		"FAKEGPU_TABLE=" + filepath.Join(root, "tuner", "tunersim", "testdata", "measurements", table+".csv")}, environ...)
	return h
}

func (h *host) path(name string) string { return filepath.Join(h.dir, name) }

// command is a dynamiccld in a process group of its own, as a shell's job is.
func (h *host) command(args ...string) (cmd *exec.Cmd, out, said *bytes.Buffer) {
	cmd = exec.Command(filepath.Join(h.root, "bin", "dynamiccld"), args...)
	cmd.Dir, cmd.Env = h.dir, h.environ
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, said = &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, said
	return cmd, out, said
}

// calibrate runs one to its end.
func (h *host) calibrate(args ...string) (r Result, said string, code int) {
	h.Helper()
	cmd, out, stderr := h.command(append([]string{"calibrate", "--store", h.path("s.db"), "--json"}, args...)...)
	err := cmd.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		h.Fatal(err)
	}
	if out.Len() > 0 {
		if err := json.Unmarshal(out.Bytes(), &r); err != nil {
			h.Fatalf("%v: %s", err, out)
		}
	}
	return r, stderr.String(), cmd.ProcessState.ExitCode()
}

// alone checks that nothing of a calibration lives on.
func (h *host) alone() {
	h.Helper()
	testproc.NoneLeft(h.T, "TMPDIR="+h.dir, 30*time.Second)
}

// The real plugin and ranks with recorded costs: what is found is near the best, with noise too.
func TestLiveFinds(t *testing.T) {
	for _, c := range []struct {
		table, options string
		args           []string
		within         float64
	}{
		{"h200x4-nvlink-quiet", "--nccl 2.28.9", []string{"--ranks", "4"}, 0.03},
		{"h200x4-nvlink-quiet", "--nccl 2.28.9 --noise 0.05 --seed 3", []string{"--ranks", "4"}, 0.05},
		{"h200x4-socket-4nodes-quiet", "--nccl 2.28.9 --noise 0.05", []string{"--ranks", "4", "--nodes", "4"}, 0.05},
	} {
		h, w := newHost(t, c.table, "FAKEGPU_OPTIONS="+c.options), newWorld(t, c.table)
		r, said, code := h.calibrate(append(c.args, "--max", "64K", "--budget", "4m")...)
		if code != 0 {
			t.Fatalf("exit code %d\n%s", code, said)
		}
		s := r.Shapes[len(r.Shapes)-1]
		near := 0
		for _, b := range s.Buckets {
			collective, err := actions.ParseCollective(b.Collective)
			if err != nil {
				t.Fatal(err)
			}
			choice, err := actions.Parse(b.Choice)
			if err != nil || !b.Stored {
				t.Errorf("%+v: %v", b, err)
				continue
			}
			bucket, _ := state.BucketOf(collective, b.MinBytes)
			cost, _ := w.cost(bucket, choice)
			if cost <= w.best(bucket)*(1+c.within) {
				near++
			}
			if b.ChoiceUs < cost/1e3*0.93 || b.ChoiceUs > cost/1e3*1.07 {
				t.Errorf("%s %d %s: %.2f us, recorded %.2f", b.Collective, b.MinBytes, b.Choice, b.ChoiceUs, cost/1e3)
			}
		}
		t.Logf("%s %s: %d of %d within %.0f%%, %d measurements in %.1f s", c.table, c.options, near, len(s.Buckets), 100*c.within, s.Points, r.Seconds)
		if len(s.Buckets) != 64 || near*10 < len(s.Buckets)*9 || r.Seconds > 240 || len(r.Warnings) > 0 {
			t.Errorf("%s: %d of %d near, %.1f s, %q", c.table, near, len(s.Buckets), r.Seconds, r.Warnings)
		}
		if want := map[bool]string{false: "socket", true: "nvlink"}[s.Nodes == 1]; s.Over != want {
			t.Errorf("%s: measured over %q, want %s", c.table, s.Over, want)
		}
		if s.NCCL != "2.28.9" || s.Machine != "no GPU, 0 NICs" {
			t.Errorf("stored under %q, NCCL %s", s.Machine, s.NCCL)
		}
		h.alone()
	}
}

// Shares of three ranks are whole where the size is rounded up, and the ranks' buffers hold it.
func TestLiveThreeRanks(t *testing.T) {
	h := newHost(t, "h200x4-nvlink-quiet", "FAKEGPU_OPTIONS=--nccl 2.28.9")
	r, said, code := h.calibrate("--ranks", "3", "--max", "64K", "--collectives", "AllReduce,AllGather", "--budget", "30s")
	if code != 0 || len(r.Warnings) > 0 || len(r.Shapes) != 1 || len(r.Shapes[0].Buckets) < 20 {
		t.Fatalf("exit code %d, %+v\n%s", code, r, said)
	}
	for _, b := range r.Shapes[0].Buckets {
		if !b.Stored && b.Why != "NCCL allows nothing else here" {
			t.Errorf("%+v", b)
		}
	}
	h.alone()
}

// A daemon's first plan for a communicator has the choices before anything was called, and a graph that is captured after
// the first epoch runs them.
func TestLiveFirstPlan(t *testing.T) {
	h := newHost(t, "h200x4-nvlink-quiet", "NCCL_SYM_NOWIN_ENABLE=0", "FAKEGPU_OPTIONS=--nccl 2.28.9")
	r, said, code := h.calibrate("--ranks", "4", "--max", "64K", "--collectives", "AllGather,Broadcast")
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, said)
	}
	for try := 1; !h.firstPlan(h.path(fmt.Sprint("run", try)), r.Shapes[0].Buckets); try++ {
		if try == 5 {
			t.Fatal("what came first was not seen once")
		}
	}
}

// firstPlan is false where this process came to look too late, as on a busy machine, and another plan was there already.
func (h *host) firstPlan(run string, buckets []BucketResult) bool {
	h.Helper()
	defer h.serve(run)()
	group := h.program(run, workers.Spec{Ranks: 4, MaxBytes: 64 << 10})
	defer h.close(group)
	version := uint64(0)
	plan := h.plan(run, func(view *nccltuner.RecordView, _ map[state.Bucket]actions.Action) bool {
		if version = view.NewestVersion; view.Ranks[0].Calls != 0 {
			h.Errorf("plan %d after %d calls", version, view.Ranks[0].Calls)
		}
		return true
	})
	if version != 1 {
		return false
	}
	choices := 0
	for _, b := range buckets {
		c, _ := actions.ParseCollective(b.Collective)
		bucket, _ := state.BucketOf(c, b.MinBytes)
		if a, planned := plan[bucket]; planned && a.String() != b.Choice || !planned && b.Choice != actions.Default.String() {
			h.Errorf("%s %d: the plan has %s, the store %s", b.Collective, b.MinBytes, a, b.Choice)
		}
		if b.Choice != actions.Default.String() {
			choices++
		}
	}
	if choices < 4 {
		h.Errorf("only %d choices", choices)
	}
	// A warm-up step of another size, then the capture.
	if _, err := group.Call(h.Context(), time.Minute, "AllReduce", 1024, 16); err != nil {
		h.Fatal(err)
	}
	h.graphs(group, buckets)
	return true
}

// Killed or stopped, what was settled is in the store, which is sound.
func TestLiveKilledAndStopped(t *testing.T) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // else the program inherits that these tests run under nohup
	defer signal.Stop(hangups)
	for _, signal := range []syscall.Signal{unix.SIGKILL, unix.SIGINT, unix.SIGHUP} {
		h := newHost(t, "h200x4-nvlink-quiet")
		cmd, out, said := h.command("calibrate", "--store", h.path("s.db"), "--ranks", "4", "--max", "4M", "--budget", "5m")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(time.Millisecond) { // until the file has a choice
			if text, err := os.ReadFile(h.path("s.db")); err == nil && bytes.Contains(text, []byte(`"action"`)) {
				time.Sleep(300 * time.Millisecond) // the transaction that writes it ends
				break
			}
			if time.Now().After(deadline) {
				_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
				_ = cmd.Wait() // killed
				t.Fatalf("nothing was stored in time:\n%s", said)
			}
		}
		if err := unix.Kill(-cmd.Process.Pid, signal); err != nil { // a terminal's Ctrl-C goes to the group
			t.Fatal(err)
		}
		_ = cmd.Wait() // its end is looked at below
		h.alone()
		s, err := store.Open(h.path("s.db"), store.Options{})
		if err != nil {
			t.Fatalf("%v: %v\n%s", signal, err, said)
		}
		stats, err := s.Stats()
		if err := errors.Join(err, s.Close()); err != nil || stats.Bad > 0 || stats.MovedTo != "" {
			t.Errorf("%v: %+v, %v", signal, stats, err)
		}
		t.Logf("%v: %d records", signal, stats.Records)
		if stats.Records == 0 || stats.Records == 65 {
			t.Errorf("%v: %d records", signal, stats.Records)
		}
		if signal != unix.SIGKILL {
			if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(said.String(), "stopped: what was settled") ||
				!strings.Contains(out.String(), "choices are in") && !strings.Contains(out.String(), "\n1 choice is in") {
				t.Errorf("%d records, exit code %d\n%s\n%s", stats.Records, cmd.ProcessState.ExitCode(), said, out)
			}
		} else if cmd.ProcessState.Success() {
			t.Errorf("it was done before it was killed:\n%s", out)
		}
	}
}

// A running daemon keeps its store: nothing is measured, and the remedy is named.
func TestLiveDaemonHasTheStore(t *testing.T) {
	h := newHost(t, "h200x4-nvlink-quiet")
	s, err := store.Open(h.path("s.db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, said, code := h.calibrate("--ranks", "4", "--max", "4K")
	if code != 1 || !strings.Contains(said, "stop `dynamiccld serve`") || !strings.Contains(said, "another calibrate") || !strings.Contains(said, h.path("s.db")) || strings.Contains(said, "ranks start") {
		t.Errorf("exit code %d\n%s", code, said)
	}
}

// A choice that hangs costs its ranks and nothing else; settings that cannot work are refused.
func TestLiveFaults(t *testing.T) {
	// NCCL's default is Ring/LL at 16 KiB of AllReduce, and not Ring/LL128 at 1 KiB of AllGather.
	h := newHost(t, "h200x4-nvlink-quiet", "FAKEGPU_FAULT=hang:rank=1,collective=AllReduce,bytes=16384,algorithm=RING,protocol=LL;"+
		"wrong:rank=2,collective=AllGather,bytes=1024,algorithm=RING,protocol=LL128")
	r, said, code := h.calibrate("--ranks", "4", "--max", "64K", "--collectives", "AllReduce,AllGather", "--timeout", "1s", "--budget", "30s")
	if code != 0 || len(r.Shapes) != 1 {
		t.Fatalf("exit code %d\n%s", code, said)
	}
	for _, b := range r.Shapes[0].Buckets {
		hangs := b.MinBytes == 16384 && b.Collective == "AllReduce"
		if b.Stored == hangs || hangs != strings.Contains(b.Why, "default fails") || b.MinBytes == 1024 && strings.HasPrefix(b.Choice, "Ring/LL128") {
			t.Errorf("%+v", b)
		}
	}
	if len(r.Warnings) < 2 || !strings.Contains(r.Warnings[0], "no answer in time") || !strings.Contains(r.Warnings[1], "elements of the result are wrong") ||
		!strings.Contains(said, "started again") {
		t.Errorf("%q\n%s", r.Warnings, said)
	}
	h.alone()
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--ranks", "4", "--store", "none"}, 2, "--store"},
		{[]string{"--ranks", "1"}, 2, "2 to 64 ranks"},
		{[]string{"--ranks", "4", "--learner", "luck"}, 2, "luck"},
		{[]string{"--ranks", "4", "--collectives", "SendRecv"}, 2, "SendRecv"},
		{[]string{"--ranks", "4", "--max", "much"}, 2, "--max"},
		{nil, 1, "nvidia-smi"},
		{[]string{"--ranks", "16", "--max", "4K"}, 1, "CUDA_VISIBLE_DEVICES"},
	} {
		if _, said, code := h.calibrate(c.args...); code != c.code || !strings.Contains(said, c.says) {
			t.Errorf("%v: exit code %d, want %d\n%s", c.args, code, c.code, said)
		}
	}
}

// Ranks that fail say why, and not that no daemon is there: who measures tells them what to run.
func TestLiveLastWords(t *testing.T) {
	h := newHost(t, "h200x4-nvlink-quiet", "FAKEGPU_FAULT=hang:rank=1,collective=AllReduce,bytes=4096;hang:rank=1,collective=AllReduce,bytes=8192;hang:rank=1,collective=AllReduce,bytes=16384")
	_, said, code := h.calibrate("--ranks", "4", "--max", "16K", "--collectives", "AllReduce", "--timeout", "1s", "--budget", "30s")
	h.alone()
	_, folder, kept := strings.Cut(strings.TrimSpace(said), "the ranks' logs are in ")
	if code != 1 || !strings.Contains(said, "no answer in time") {
		t.Fatalf("exit code %d\n%s", code, said)
	}
	if !kept {
		return // none has said anything
	}
	defer os.RemoveAll(folder)
	logs, err := filepath.Glob(filepath.Join(folder, "*", "rank*.log"))
	if err != nil || len(logs) < 4 {
		t.Fatal(logs, err)
	}
	for _, log := range logs { // whose end is a rank's last words
		if text, err := os.ReadFile(log); err != nil || strings.Contains(string(text), "no daemon") {
			t.Errorf("%s, %v: %s", log, err, text)
		}
	}
}
