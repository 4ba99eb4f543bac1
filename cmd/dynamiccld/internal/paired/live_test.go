package paired

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/forced"
)

const sockets = "h200x4-socket-4nodes-quiet"

// Where the table says that NCCL's default is beaten, the arm that learns beats it, by no more than the table says; plain
// NCCL takes what the table says, and so does who only watches. (A table has several values of the default, of which its
// readers take one or a mean.)
func TestLiveGain(t *testing.T) {
	m := newMachine(t, sockets, "FAKEGPU_LOAD_FACTOR=2")
	said, code := m.bench("", 0, "--nodes", "4", "--arms", "plain,run,observe,plugin", "--collectives", "AllReduce,AllGather", "--sizes", "1K,64K",
		"--phases", "quiet:3s,compute:2s", "--min-rounds", "60", "--explore-budget", "30%", "--calls", "20", "--learner", "coordinate-descent", "--store", "learnt.db")
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, said)
	}
	r := m.read()
	if len(r.phases) != 2 || len(r.rounds) != 8 || len(r.phases[0].Points) != 4 || r.phases[0].Rounds < 20 {
		t.Fatalf("%d phases, %d points\n%s", len(r.phases), len(r.rounds), said)
	}
	for _, p := range r.phases[0].Points {
		byDefault, best := m.costs(sockets, p.Collective, p.Bytes)
		for _, arm := range []string{"plain", "observe", "plugin"} {
			if math.Abs(p.Us[arm]/byDefault-1) > 5e-3 {
				t.Errorf("%s %d: %s takes %.2f us, NCCL's default %.2f", p.Collective, p.Bytes, arm, p.Us[arm], byDefault)
			}
		}
		if p.Us["run"] < best*0.999 || p.Us["run"] > 0.95*byDefault {
			t.Errorf("%s %d: run takes %.2f us; the best is %.2f, NCCL's default %.2f", p.Collective, p.Bytes, p.Us["run"], best, byDefault)
		}
		if ratio := p.Ratio["run"]; math.Abs(ratio.Median*p.Us["run"]/p.Us["plain"]-1) > 1e-3 || ratio.Low == nil || *ratio.Low > ratio.Median {
			t.Errorf("%s %d: ratio %s of %v us", p.Collective, p.Bytes, ratio, p.Us)
		}
		if ratio := p.Ratio["observe"]; math.Abs(ratio.Median-1) > 1e-3 {
			t.Errorf("%s %d: who watches is %s", p.Collective, p.Bytes, ratio)
		}
	}
	first, loaded := r.phases[0], r.phases[1]
	if g := first.Geomean["run"]; g.Median < 1.15 || first.Whole["run"] > g.Median || first.Worst["run"].Ratio > g.Median {
		t.Errorf("geometric mean %s, over the whole phase %.3f, worst %+v", g, first.Whole["run"], first.Worst["run"])
	}
	if a := first.Adapt["run"]; !a.Settled || a.Seconds == nil || *a.Seconds > first.Seconds/2 {
		t.Errorf("adapted %+v", a)
	}
	// The load is on while batches are timed, in every arm.
	if f := loaded.Points[0].Us["plain"] / first.Points[0].Us["plain"]; math.Abs(f-2) > 0.01 || loaded.Load != "compute" {
		t.Errorf("under load plain calls take %.3f times as long", f)
	}
	for arm, has := range map[string]bool{"plain": false, "run": true, "observe": true, "plugin": false} {
		if h := first.Detector[arm]; (h != nil) != has || has && h.Error != "" {
			t.Errorf("what the detector of arm %s says: %+v", arm, h)
		}
	}
	// Of a load that doubles costs an arm that only watches says that they rose.
	if h := loaded.Detector["observe"]; h == nil || !saidUp(h, "AllReduce", 1024) {
		t.Errorf("the detector of the arm that watches, under load: %+v", h)
	}
	d := r.end.Daemons["run"]
	if d == nil || d.Error != "" || d.Status.Samples == 0 || len(d.Report.Comms) != 1 || len(first.Choices["run"]) < 4 {
		t.Fatalf("what the daemon says: %+v", d)
	}
	for _, b := range d.Report.Comms[0].Buckets {
		own := b.MinBytes == 4 // bench's, once a batch: seen now and then
		if b.Calls > 0 && !own && (b.Ledger == nil || b.Ledger.Trials == 0) {
			t.Errorf("%s %d: nothing was tried: %+v", b.Collective, b.MinBytes, b.Ledger)
		}
	}
	if w := r.end.Daemons["observe"]; w == nil || w.Status.Samples == 0 || w.Status.Learner != "default" {
		t.Errorf("what the watching daemon says: %+v", w)
	}
	if _, err := os.Stat(m.path("learnt.db")); err != nil || r.end.Error != "" || r.head.Machine.Identity.Nodes != 4 {
		t.Errorf("%v, %+v", err, r.end)
	}
	for _, text := range []string{"plain/run", "phase 2 of 2: compute", "adapted after", "in the geometric mean", "its detector: ", "alarm-up, first after"} {
		if !strings.Contains(said, text) {
			t.Errorf("it does not say %q\n%s", text, said)
		}
	}
}

// newKernels is a machine whose ranks can run our kernels, which take 4 us and more.
func newKernels(t *testing.T, table string) *machine {
	t.Helper()
	return newMachine(t, table, "DYNAMICCL_NO_KERNELS=", "DYNAMICCL_KERNELS="+fatbin(t), "DYNAMICCL_SCRATCH_MIB=16", "FAKEGPU_KERNEL_US=4", "FAKEGPU_KERNEL_GBS=20",
		"NCCL_SYM_NOWIN_ENABLE=0")
}

// oneOfThree: a daemon without a CPU learns nothing meanwhile, so of three runs one has to be as it should.
func oneOfThree(t *testing.T, run func(t *testing.T) (wrong []string)) {
	t.Helper()
	for n := 1; n <= 3; n++ {
		wrong := run(t)
		if len(wrong) == 0 {
			return
		}
		t.Logf("run %d: %s", n, strings.Join(wrong, "\n"))
	}
	t.Fatal("none of three runs was right")
}

// Graphs hold what an earlier run learnt, and the daemon hears from all ranks what our kernels take when they are replayed.
func TestLiveReplays(t *testing.T) { oneOfThree(t, liveReplays) }

func liveReplays(t *testing.T) (wrong []string) {
	m := newKernels(t, "h200x4-nvlink-quiet")
	for _, args := range [][]string{{"--out", "eager.jsonl", "--explore-budget", "30%", "--min-rounds", "300"}, {"--time", "graph", "--min-rounds", "160"}} {
		if said, code := m.bench("", 0, append(args, "--arms", "plain,run", "--collectives", "AllGather", "--sizes", "1K,4K", "--phases", "quiet:2s",
			"--calls", "20", "--store", "learnt.db")...); code != 0 {
			t.Fatalf("exit code %d\n%s", code, said)
		}
	}
	d := m.read().end.Daemons["run"]
	if d == nil || d.Error != "" || d.Status.Graphs == nil {
		t.Fatalf("what the daemon says: %+v", d)
	}
	// All ranks number their kernels alike: what one tells of, all do, but for what they told of last.
	g, r := d.Status.Graphs, d.Status.Core.Replays
	if g.Choices != 2 || g.Replays != r.Joined || r.Joined < 10 || r.Samples < 4*r.Joined || r.Samples > 5*r.Joined || r.Late+r.Disagreed+r.Unknown+r.Unkept > 0 {
		wrong = append(wrong, fmt.Sprintf("%+v, %+v", g, r))
	}
	return wrong
}

// Path is learnt like any other choice: our kernels where they are faster, NCCL where it is, and every element right.
func TestLiveKernels(t *testing.T) { oneOfThree(t, liveKernels) }

func liveKernels(t *testing.T) (wrong []string) {
	const table = "h200x4-nvlink-quiet"
	m := newKernels(t, table)
	said, code := m.bench("", 0, "--arms", "plain,run,run+DYNAMICCL_NO_KERNELS=1", "--collectives", "AllReduce,AllGather,AllToAll", "--sizes", "1K,1M", "--phases", "quiet:2s", "--min-rounds", "100",
		"--explore-budget", "30%", "--calls", "20")
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, said)
	}
	r := m.read()
	if len(r.phases) != 1 || len(r.phases[0].Points) != 6 {
		t.Fatalf("%d phases\n%s", len(r.phases), said)
	}
	for _, p := range r.phases[0].Points {
		recorded := p.Collective
		if recorded == "AllToAll" { // of which the stand-in has one way, that costs what AllGather's does
			recorded = "AllGather"
		}
		byDefault, best := m.costs(table, recorded, p.Bytes)
		if recorded != p.Collective {
			best = byDefault
		}
		switch us, without := p.Us["run"], p.Us["run+DYNAMICCL_NO_KERNELS=1"]; {
		case p.Bytes < 1<<20 && (us > 4.2 || without < best*0.999):
			wrong = append(wrong, fmt.Sprintf("%s %d: %.2f us with our kernels, which take 4.05, and %.2f without; NCCL's best is %.2f", p.Collective, p.Bytes, us, without, best))
		case p.Bytes >= 1<<20 && (us < best*0.999 || us > byDefault*1.03):
			wrong = append(wrong, fmt.Sprintf("%s %d: %.2f us; NCCL's default takes %.2f, its best choice %.2f, our kernels 30 and more", p.Collective, p.Bytes, us, byDefault, best))
		}
	}
	ours := 0
	for _, c := range r.phases[0].Choices["run"] {
		if strings.HasPrefix(c.Choice, "lsa/") {
			ours++
		}
	}
	if ours != 3 {
		wrong = append(wrong, fmt.Sprintf("%d choices are our kernels: %+v", ours, r.phases[0].Choices["run"]))
	}
	return wrong
}

// A load comes under which what was learnt is a loss: the arm finds something else, and what it had once the load is gone. A daemon adapts to
// nothing while it has no CPU, and ranks go on: beside three busy loops on two CPUs it had none for up to 6 s at a stretch, and phases are as
// long. So a run in which it waited for long counts only where it adapted all the same.
func TestLiveAdapts(t *testing.T) {
	const runs, longWait = 4, 500 * time.Millisecond
	for run := 1; ; run++ {
		m := newMachine(t, quietTable)
		over, watched := make(chan struct{}), make(chan time.Duration, 1)
		go func() { watched <- m.daemonWaits(over) }()
		wrong := m.adapts()
		close(over)
		starved := <-watched
		if len(wrong) > 0 && starved > longWait && run < runs {
			t.Logf("the daemon had no CPU for %v: once more, for %q", starved, wrong)
			continue
		}
		for _, w := range wrong {
			t.Errorf("run %d, in which the daemon had no CPU for %v: %s", run, starved, w)
		}
		return
	}
}

const quietTable, loadedTable = "h200x4-socket-2nodes-quiet", "h200x4-socket-2nodes-cpu-load"

// adapts says what is wrong in a run of three phases. Judged by rounds, of which phases have enough however busy the machine is.
func (m *machine) adapts() (wrong []string) {
	m.Helper()
	m.environ = append(m.environ, "FAKEGPU_LOADED_TABLE="+m.recorded(loadedTable))
	said, code := m.bench("", 0, "--nodes", "2", "--collectives", "AllReduce", "--sizes", "4K", "--phases", "quiet:1s,compute:1s,quiet:1s", "--min-rounds", "450",
		"--explore-budget", "30%", "--calls", "20", "--learner", "coordinate-descent")
	r := m.read()
	if code != 0 || len(r.phases) != 3 || len(r.rounds) != 3 {
		m.Fatalf("exit code %d\n%s", code, said)
	}
	wrong = heardOf(r)
	for i, table := range []string{quietTable, loadedTable, quietTable} {
		byDefault, best := m.costs(table, "AllReduce", 4096)
		plain, run := r.rounds[i].Us["plain"], r.rounds[i].Us["run"]
		var numbers, ratios []float64
		for round := range plain {
			numbers, ratios = append(numbers, float64(round)), append(ratios, plain[round]/run[round])
		}
		if first := forced.Median(ratios[:3]); i == 1 && first > 0.95 {
			wrong = append(wrong, fmt.Sprintf("when the load comes, run is %.3f times as fast: there was nothing to adapt to", first))
		}
		last := len(plain) * 2 / 3
		us, with := forced.Median(plain[last:]), forced.Median(run[last:])
		if a := adapted(numbers, ratios, float64(len(plain))); !a.Settled || math.Abs(us/byDefault-1) > 5e-3 || with < best*0.999 || us/with < 1.1 {
			wrong = append(wrong, fmt.Sprintf("phase %d: adapted %+v in %d rounds, then plain takes %.2f us and run %.2f; the table says %.2f and at best %.2f", i+1, a,
				len(plain), us, with, byDefault, best))
		}
	}
	return wrong
}

// heardOf says what is wrong with what the phases' detectors said: that the load came, and no more in all than the daemon counted.
func heardOf(r result) (wrong []string) {
	all := uint64(0)
	for i, p := range r.phases {
		h := p.Detector["run"]
		if h == nil || h.Error != "" {
			return []string{fmt.Sprintf("phase %d: the detector's words: %+v", i+1, h)}
		}
		all += h.Alarms
		if i == 1 && !saidUp(h, "AllReduce", 4096) {
			wrong = append(wrong, fmt.Sprintf("the load came, and the detector said %+v", h))
		}
	}
	if counted := r.end.Daemons["run"].Status.Core.Alarms; all == 0 || all > counted {
		wrong = append(wrong, fmt.Sprintf("%d alarms in the phases, %d in all", all, counted))
	}
	return wrong
}

// saidUp says that there was an alarm, in the phase.
func saidUp(h *Heard, collective string, minBytes uint64) bool {
	return h.Alarms > 0 && slices.ContainsFunc(h.Said, func(s Said) bool {
		return s.Kind == "alarm-up" && s.Collective == collective && s.MinBytes == minBytes && s.FirstS < mostTime.Seconds()
	})
}

// What the user's environment has of ours does not reach plain NCCL.
func TestLivePlainIsPlain(t *testing.T) {
	m := newMachine(t, sockets)
	preload := filepath.Join(m.root, "lib", "libdynamiccl.so")
	for i, e := range m.environ {
		if name, value, _ := strings.Cut(e, "="); name == "LD_PRELOAD" {
			m.environ[i] = name + "=" + preload + ":" + value
		}
	}
	m.environ = append(m.environ, "NCCL_TUNER_PLUGIN="+filepath.Join(m.root, "lib", "libnccl-tuner-dynamiccl.so"), "NCCL_SYM_NOWIN_ENABLE=1",
		"NCCL_PROFILER_PLUGIN=dynamiccl", "DYNAMICCL_DIR="+m.path("theirs"))
	said, code := m.bench("", 0, "--nodes", "4", "--collectives", "AllReduce", "--sizes", "64K", "--phases", "quiet:1s")
	r := m.read()
	if code != 0 || !slices.Equal(r.head.Machine.Identity.Environment, []string{"DYNAMICCL_NO_KERNELS=1"}) { // which this machine has
		t.Errorf("exit code %d, %v\n%s", code, r.head.Machine.Identity.Environment, said)
	}
	if byDefault, _ := m.costs(sockets, "AllReduce", 65536); math.Abs(r.phases[0].Points[0].Us["plain"]/byDefault-1) > 5e-3 {
		t.Errorf("plain takes %.2f us, NCCL's default %.2f", r.phases[0].Points[0].Us["plain"], byDefault)
	}
	if _, err := os.Stat(m.path("theirs")); err == nil {
		t.Error("the user's own directory was used")
	}
}
