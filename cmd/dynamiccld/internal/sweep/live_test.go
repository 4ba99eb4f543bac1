package sweep

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/forced"
)

// The table that NCCL's stand-in plays comes back, value for value.
func TestLiveTables(t *testing.T) {
	for _, c := range []struct {
		table, nccl string
		args        []string
		rows        int
	}{
		{"h200x4-nvlink-quiet", "2.28.9", []string{"--ranks", "4", "--max", "64K"}, 300},
		{"h200x4-nvlink-quiet-nccl2.32.3", "2.32.3", []string{"--ranks", "4", "--sizes", "1K,64K", "--collectives", "AllReduce,AllGather"}, 120},
		{"h200x4-socket-4nodes-quiet", "2.30.7", []string{"--ranks", "4", "--nodes", "4", "--sizes", "1K,1M", "--calls", "stream"}, 150},
		{"h200x3-nvlink-quiet", "2.28.9", []string{"--ranks", "3", "--sizes", "1K,64K", "--rounds", "2"}, 150},
	} {
		t.Run(c.table, func(t *testing.T) {
			// The recorded tables are of NCCL without device kernels on ordinary buffers.
			m := newMachine(t, c.table, "FAKEGPU_OPTIONS=--nccl "+c.nccl, "NCCL_SYM_NOWIN_ENABLE=0")
			said := m.must(append(c.args, "--out", "t.csv")...)
			m.same(m.path("t.csv"), c.table, c.rows)
			if !strings.Contains(said, "rows in t.csv") || !strings.Contains(said, "collective") {
				t.Errorf("it said\n%s", said)
			}
			points, _, err := readJournal(m.path("t.points.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range points {
				if p.Outcome != OutcomeOK && p.Outcome != outcomeDone {
					t.Errorf("%+v", p)
				}
				if p.Outcome == OutcomeOK && p.Collective != AllToAll && (p.Ran == "" || len(p.RankUs) == 0) {
					t.Errorf("what ran is not known: %+v", p)
				}
			}
			text, err := os.ReadFile(m.path("t.json"))
			if err != nil || !strings.Contains(string(text), `"nccl": "`+c.nccl+`"`) || !strings.Contains(string(text), "GPU-fafafafa-fafa") {
				t.Errorf("description, %v:\n%s", err, text)
			}
			m.alone()
		})
	}
}

// Where our kernels were built they are measured beside NCCL's choices, in graphs and in streams, and every element of what
// they give is compared. What they cost here is the stand-in's.
func TestLiveKernels(t *testing.T) {
	for _, c := range []struct {
		calls, sizes, mib string
		collectives       string
		rows              map[string]float64 // some of them, us
		all               int
	}{
		{"graph", "64K", "16", "AllReduce,ReduceScatter", map[string]float64{"AllReduce 65536 oneshot 16": 3.66, "AllReduce 65536 twoshot 4": 3.66,
			"ReduceScatter 65536 oneshot 16": 3.16}, 15},
		{"stream", "1K", "16", "AllGather,Broadcast,AllToAll", map[string]float64{"AllGather 1024 oneshot 1": 3, "Broadcast 1024 oneshot 1": 3.01, "AllToAll 1024 oneshot 1": 3}, 3},
		// A MiB of scratch memory has room for no more lines, but what goes in bulk goes in rounds.
		{"graph", "1K,512K", "1", "AllReduce,AllGather,AllToAll", map[string]float64{"AllReduce 1024 twoshot 1": 3.01, "AllReduce 524288 bulk 32": 8.24, "AllGather 524288 bulk 64": 4.31, "AllToAll 524288 bulk 64": 4.31}, 10},
	} {
		m := newMachine(t, "h200x4-nvlink-quiet", kernels(t, "FAKEGPU_KERNEL_US=3", "FAKEGPU_KERNEL_GBS=100", "DYNAMICCL_SCRATCH_MIB="+c.mib)...)
		said := m.must("--ranks", "4", "--calls", c.calls, "--sizes", c.sizes, "--collectives", c.collectives, "--choices", "lsa,ring/ll/8", "--budget", "1ms", "--out", "t.csv")
		rows := map[string]float64{}
		for key, us := range m.medians(m.path("t.csv")) {
			if !strings.Contains(key, " lsa ") {
				continue
			}
			var err error
			if rows[strings.NewReplacer(" lsa ", " ", " - ", " ").Replace(key)], err = strconv.ParseFloat(us[0], 64); err != nil {
				t.Fatal(err)
			}
		}
		for point, want := range c.rows {
			if us, ok := rows[point]; !ok || math.Abs(us-want) > 0.02 {
				t.Errorf("%s calls, %s: %g us (measured: %v), want %g", c.calls, point, us, ok, want)
			}
		}
		if len(rows) != c.all || !strings.Contains(said, "lsa/oneshot") {
			t.Errorf("%s calls: %d rows, want %d\n%s", c.calls, len(rows), c.all, said)
		}
		m.alone()
	}
}

// Lines may tear on other links than NVLink, so where a pair of GPUs has none there are no kernels over load and store.
func TestLiveKernelsOverNVLinkAlone(t *testing.T) {
	for links, want := range map[string]bool{"nvlink": true, "bridges": false, "pcie": false} {
		m := newMachine(t, "h200x4-nvlink-quiet", kernels(t, "FAKEGPU_LINKS="+links, "DYNAMICCL_SCRATCH_MIB=16")...)
		m.must("--ranks", "4", "--sizes", "1K", "--collectives", "AllReduce", "--choices", "lsa,ring/ll/8", "--budget", "1ms", "--out", "t.csv")
		points, _, err := readJournal(m.path("t.points.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		ran := false
		for _, p := range points {
			ran = ran || strings.HasPrefix(p.Action, "lsa/") && p.Outcome == OutcomeOK
		}
		if ran != want {
			t.Errorf("%s: our kernels ran: %v", links, ran)
		}
		m.alone()
	}
}

// Ranks of a node that share a GPU leave each other places on it, whatever is asked for (docs/design.md, decision 2.4).
func TestLiveSharedGPUs(t *testing.T) {
	for gpus, most := range map[string]int{"4": 64, "2": 35, "1": 15} {
		m := newMachine(t, "h200x4-nvlink-quiet", kernels(t, "FAKEGPU_GPUS="+gpus, "NCCL_MULTI_RANK_GPU_ENABLE=1", "DYNAMICCL_SCRATCH_MIB=16")...)
		m.must("--ranks", "4", "--sizes", "512K", "--collectives", "AllReduce", "--choices", "lsa", "--budget", "1ms", "--out", "t.csv")
		points, _, err := readJournal(m.path("t.points.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		ran := map[string]int{}
		for _, p := range points {
			if strings.HasPrefix(p.Action, "lsa/") && p.Outcome == OutcomeOK {
				ran[p.Action] = p.Grid
			}
		}
		if len(ran) != 2 || ran["lsa/bulk/32"] != min(32, most) || ran["lsa/bulk/64"] != min(64, most) {
			t.Errorf("4 ranks on %s GPUs: CTAs %v, want at most %d", gpus, ran, most)
		}
		m.alone()
	}
}

// kernels is the environment in which the stand-in for CUDA runs our kernels, which it knows by a fatbin's first word.
func kernels(t *testing.T, environ ...string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kernels.fatbin")
	if err := os.WriteFile(file, []byte{0x50, 0xed, 0x55, 0xba}, 0o600); err != nil {
		t.Fatal(err)
	}
	return append([]string{"DYNAMICCL_NO_KERNELS=", "DYNAMICCL_KERNELS=" + file}, environ...)
}

func TestLiveKilledAndStopped(t *testing.T) {
	const table = "h200x4-nvlink-quiet"
	m := newMachine(t, table)
	args := []string{"--ranks", "4", "--collectives", "AllReduce,AllGather", "--max", "64K", "--out", "t.csv", "--load", "network", "--load-size", "2",
		"--condition", "quiet"}
	said, state := m.killed(30, unix.SIGKILL, args...)
	if state.Success() {
		t.Fatalf("it was done before it was killed:\n%s", said)
	}
	m.alone() // ranks and load die with it
	killed := state.Pid()
	said, state = m.killed(80, unix.SIGINT, args...)
	if state.ExitCode() != 1 || !strings.Contains(said, "stopped after") || !strings.Contains(said, "the same command goes on") {
		t.Fatalf("Ctrl-C: %v\n%s", state, said)
	}
	m.alone()
	readTable(t, m.path("t.csv"))
	m.must(args...)
	m.same(m.path("t.csv"), table, 150)
	points, _, err := readJournal(m.path("t.points.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	times := map[pointKey]int{}
	for _, p := range points {
		if times[p.key()]++; times[p.key()] > 1 && p.Outcome != outcomeDone {
			t.Errorf("measured twice: %+v", p)
		}
	}
	for _, pid := range []int{killed, state.Pid()} {
		for _, parent := range []string{m.dir, "/dev/shm"} {
			left, err := filepath.Glob(filepath.Join(parent, fmt.Sprint(forced.ScratchPrefix, pid, "-*")))
			if err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		}
	}
	if _, code := m.sweep(append(args, "--budget", "50ms")...); code != 1 {
		t.Error("another budget went into the same table")
	}
}

func TestLiveFaults(t *testing.T) {
	m := newMachine(t, "h200x4-nvlink-quiet")
	m.environ = append(m.environ, "FAKEGPU_FAULT=hang:rank=1,collective=AllReduce,bytes=65536,algorithm=TREE,protocol=LL;"+
		"wrong:rank=2,collective=AllReduce,bytes=1024,algorithm=RING,protocol=SIMPLE;fail:rank=0,collective=AllGather,bytes=1024;"+
		"die:rank=3,collective=AllReduce,bytes=4096,from=1500,once="+m.path("died"))
	said := m.must("--ranks", "4", "--collectives", "AllReduce,AllGather", "--sizes", "1K,4K,64K", "--channels", "1,8", "--out", "t.csv", "--timeout", "2s")
	points, _, err := readJournal(m.path("t.points.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	outcomes := map[string]string{}
	died := 0
	for _, p := range points {
		if p.Outcome == OutcomeFailed && strings.Contains(p.Reason, "signal: killed") {
			died++
		} else if p.Outcome != OutcomeOK && p.Outcome != outcomeDone {
			outcomes[fmt.Sprintf("%s %d %s", p.Collective, p.Bytes, p.Action)] = p.Outcome
		}
	}
	want := map[string]string{"AllReduce 65536 Tree/LL/1": OutcomeHung, "AllReduce 65536 Tree/LL/8": OutcomeHung,
		"AllReduce 1024 Ring/Simple/1": OutcomeWrong, "AllReduce 1024 Ring/Simple/8": OutcomeWrong, "AllGather 1024 default": OutcomeFailed}
	for name, outcome := range want {
		if outcomes[name] != outcome {
			t.Errorf("%s: %q, want %s", name, outcomes[name], outcome)
		}
	}
	if len(outcomes) != len(want) || died != 1 {
		t.Errorf("outcomes %v, %d died", outcomes, died)
	}
	m.alone()
	if rows := m.medians(m.path("t.csv")); len(rows["AllReduce 65536 collective Ring LL 8"]) != 1 || len(rows["AllReduce 65536 collective Tree LL 8"]) != 0 {
		t.Errorf("rows %v", rows)
	}
	for _, text := range []string{"Tree/LL/1: hung", "Ring/Simple/8: wrong", "2 wrong", "2 hung", "2 failed"} {
		if !strings.Contains(said, text) {
			t.Errorf("it does not say %q:\n%s", text, said)
		}
	}
}

// GPUs are loaded while replays are timed, and the load ends with the sweep.
func TestLiveLoads(t *testing.T) {
	const table = "h200x4-nvlink-quiet"
	for _, c := range []struct {
		load, condition string
		factor          float64
	}{{LoadCompute, "compute-load", 2}, {LoadCopy, "network-load", 2}, {LoadCPU, "cpu-load", 1}, {LoadNetwork, "network-load", 1}} {
		m := newMachine(t, table, "FAKEGPU_LOAD_FACTOR=2")
		m.must("--ranks", "4", "--load", c.load, "--load-size", "1", "--sizes", "1K", "--collectives", "AllReduce", "--choices", "ring/ll/1", "--out", "t.csv")
		got, want := readTable(t, m.path("t.csv")), readTable(t, m.recorded(table))
		choice := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL, Channels: 1}
		for _, b := range got.Buckets() {
			us, ok := got.Cost(b, choice)
			byTable, _ := want.Cost(b, choice)
			if !ok || got.Condition != c.condition || math.Abs(us/byTable-c.factor) > 1e-3 {
				t.Errorf("%s: %v ns in condition %s, recorded %v", c.load, us, got.Condition, byTable)
			}
		}
		m.alone()
	}
}

// By CUDA events around the calls, and by NCCL's kernel events.
func TestLiveSamples(t *testing.T) {
	for _, c := range []struct {
		nccl     string
		kernels  string
		flags    string
		launchNs float64 // that times leave out
		over     float64 // us that the daemon's cost may be above the events', since it adds a fixed launch
	}{{"2.28.9", "0", "32", 0, 0.02}, {"2.32.3", "0", "32", 0, 0.02}, {"2.28.9", "1", "0", 4600, 0.2}, {"2.32.3", "1", "0", 4600, 0.2}} {
		t.Run(c.nccl+" kernels "+c.kernels, func(t *testing.T) {
			m := newMachine(t, "h200x4-nvlink-quiet", "FAKEGPU_OPTIONS=--nccl "+c.nccl, "DYNAMICCL_KERNEL_EVENTS="+c.kernels)
			// The plugin reads the host's clock: the stand-in's must come before libc's.
			m.environ = append(m.environ, "LD_PRELOAD="+filepath.Join(m.root, ".cache", "fakegpu", "libnccl.so.2"))
			m.must("--ranks", "4", "--collectives", "AllReduce", "--sizes", "1K,64K", "--channels", "1", "--calls", "stream",
				"--samples", "s.csv", "--out", "t.csv")
			f, err := os.Open(m.path("s.csv"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			all, err := csv.NewReader(f).ReadAll()
			if err != nil || !slices.Equal(all[0], sampleColumns) {
				t.Fatalf("%v", err)
			}
			seen, ll := map[string]int{}, "Tree/LL/1"
			switch {
			case c.nccl != "2.32.3":
			case c.kernels == "0":
				ll = "Ring/LL" // the one choice that means the device kernel
			default:
				ll = "Ring/LL128/1" // without the preload library nobody knows that no AllReduce averages, and it has no LL (plugin/everywhere.h)
			}
			for _, r := range all[1:] {
				if len(r) != len(sampleColumns) || r[8] == "0" || r[11] == "0" || r[12] == "0" || r[13] != c.flags {
					t.Fatalf("sample %v", r)
				}
				// The stand-in's kernels take the whole of a call but for the launch.
				us, err := strconv.ParseFloat(r[14], 64)
				ran := r[4]
				if ran == "Ring/LL" && c.nccl == "2.32.3" {
					ran = "-" // a device kernel
				}
				signal, signalErr := strconv.ParseFloat(r[12], 64) // ns, and us is rounded to one
				if launch := min(c.launchNs, us*500); err != nil || signalErr != nil || math.Abs(signal-us*1000+launch) > 1 || ran != "default" && ran != r[5] {
					t.Fatalf("sample %v", r)
				}
				seen[r[3]+" "+r[4]+" "+r[6]]++
			}
			for _, bytes := range []string{"1024", "65536"} {
				for _, choice := range []string{"default", ll, "Ring/Simple/1"} {
					for rank := range 4 {
						if n := seen[fmt.Sprintf("%s %s %d", bytes, choice, rank)]; n < 20 {
							t.Errorf("%s %s rank %d: %d samples", bytes, choice, rank, n)
						}
					}
				}
			}
			// What the daemon would charge is what the events say.
			points, _, err := readJournal(m.path("t.points.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			held := 0
			for _, p := range points {
				if p.Outcome != OutcomeOK {
					continue
				}
				held++
				under := 0.02
				switch {
				case c.launchNs == 0:
					under = 2.02                                                              // is taken off for real events, and the stand-in's take no time
					if p.Ran == deviceKernel || p.Action == "default" && c.nccl == "2.32.3" { // which takes it by itself
						under += 1.6 // a real one begins while the one before ends
					}
				case p.Ran == deviceKernel:
					under = 1.22 // its launch is charged as 3.4 us, and the stand-in's takes 4.6
				}
				if p.SampledCalls < 20 || p.SampledUs < p.MedianUs-under || p.SampledUs > p.MedianUs+c.over {
					t.Errorf("%s %d %s: %.2f us by %d samples, %.2f by events", p.Collective, p.Bytes, p.Action, p.SampledUs, p.SampledCalls, p.MedianUs)
				}
			}
			if held < 6 {
				t.Errorf("%d points", held)
			}
		})
	}
}

func TestLiveMachinesThatCannot(t *testing.T) {
	m := newMachine(t, "h200x4-nvlink-quiet")
	good := m.environ
	without := func(name string) []string {
		return slices.DeleteFunc(slices.Clone(good), func(e string) bool { return strings.HasPrefix(e, name+"=") })
	}
	for _, c := range []struct {
		what    string
		environ []string
		args    []string
		code    int
		says    []string
	}{
		{"no GPU", good, nil, 1, []string{"nvidia-smi -L", "needs NVIDIA GPUs"}},
		{"hidden GPUs", append(slices.Clone(good), "CUDA_VISIBLE_DEVICES=-1"), nil, 1, []string{"CUDA_VISIBLE_DEVICES"}},
		{"no NCCL", without("LD_LIBRARY_PATH"), []string{"--ranks", "4"}, 1, []string{"libnccl.so.2", "--nccl-lib"}},
		{"no library", good, []string{"--ranks", "2", "--nccl-lib", m.recorded("h200x4-nvlink-quiet")}, 1, []string{"loading NCCL", "rank 0"}},
		{"no such NCCL", good, []string{"--ranks", "2", "--nccl-lib", "/nowhere/libnccl.so.2"}, 2, []string{"--nccl-lib"}},
		{"too few GPUs", append(slices.Clone(good), "FAKEGPU_GPUS=1"), []string{"--ranks", "2"}, 1, []string{"rank 1", "CUDA_VISIBLE_DEVICES"}},
		{"too few GPUs of a node", append(slices.Clone(good), "FAKEGPU_GPUS=1"), []string{"--ranks", "4", "--nodes", "2"}, 1, []string{"rank 1", "CUDA_VISIBLE_DEVICES"}},
		{"no plugin", good, []string{"--ranks", "2", "--plugin-dir", m.dir}, 1, []string{"make plugin"}},
		{"no worker", good, []string{"--ranks", "2", "--worker", m.path("none")}, 2, []string{"--worker"}},
		{"the user's choice", append(slices.Clone(good), "NCCL_ALGO=Ring"), []string{"--ranks", "2"}, 1, []string{"NCCL_ALGO=Ring", "unset"}},
		{"another profiler", append(slices.Clone(good), "NCCL_PROFILER_PLUGIN=none"), []string{"--ranks", "2"}, 1, []string{"NCCL_PROFILER_PLUGIN"}},
		{"samples of graphs", good, []string{"--ranks", "2", "--samples", "s.csv"}, 2, []string{"--calls stream"}},
		{"wrong choice", good, []string{"--ranks", "2", "--choices", "ringo/ll"}, 2, []string{"ringo/ll", "Ring"}},
		{"uneven nodes", good, []string{"--ranks", "4", "--nodes", "3"}, 2, []string{"same number of ranks"}},
	} {
		m.environ = c.environ
		said, code := m.sweep(append(c.args, "--out", "t.csv", "--sizes", "1K")...)
		if code != c.code {
			t.Errorf("%s: exit code %d, want %d\n%s", c.what, code, c.code, said)
		}
		for _, text := range c.says {
			if !strings.Contains(said, text) {
				t.Errorf("%s: it does not say %q:\n%s", c.what, text, said)
			}
		}
		if _, err := os.Stat(m.path("t.csv")); err == nil {
			t.Errorf("%s: there is a table", c.what)
		}
		if m.took > 100*time.Second {
			t.Errorf("%s: it took %v to say so", c.what, m.took)
		}
	}
	m.alone()
}
