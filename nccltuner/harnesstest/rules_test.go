package harnesstest

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/nccltuner/ranklog"
)

// allReduceOnly is a workload of one size at which Tree, LL and all channels make sense.
func allReduceOnly(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "workload")
	if err := os.WriteFile(path, []byte("# one size\nAllReduce,4194304,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSelftest(t *testing.T) {
	if r := run(t, nil, "--selftest"); r.code != 0 || !strings.Contains(r.stdout, " 0 failures") {
		t.Errorf("exit code %d\n%s", r.code, r.stdout)
	}
}

func TestUsageAndErrors(t *testing.T) {
	help := mustRun(t, nil, "--help").stdout
	for _, option := range []string{"--sync", "--phase", "--fault", "--join-late", "--measure", "Exit codes"} {
		if !strings.Contains(help, option) {
			t.Errorf("--help does not mention %s", option)
		}
	}
	table := oneNode.write(t)
	bad := filepath.Join(t.TempDir(), "bad.csv")
	if err := os.WriteFile(bad, []byte("hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		args []string
		want string // part of the message: what and where
	}{
		{[]string{}, "give --table CSV"},
		{[]string{"--tabel", table}, "--tabel"},
		{[]string{"--table"}, "--table CSV"},
		{[]string{"--table", table, "--noise", "-1"}, "--noise -1: want a number from 0 to 5"},
		{[]string{"--table", table, "--comms", "1.5"}, "--comms 1.5: want a whole number"},
		{[]string{"--table", table, "--calls", "nan"}, "--calls nan"},
		{[]string{"--table", table, "--phase", table + ":5"}, "exclude each other"},
		{[]string{"--phase", table}, "want CSV:CALLS"},
		{[]string{"--table", table, "--nccl", "2.31"}, "--nccl 2.31"},
		{[]string{"--table", table, "--fault", "gremlins:5"}, "--fault gremlins:5: unknown kind"},
		{[]string{"--table", table, "--spawn", "--sync", "x"}, "leave out --rank and --sync"},
		{[]string{"--table", table, "--spawn=yes"}, "takes no value"},
		{[]string{"--table", table, "--join-late", "1:100"}, "--window"},
		{[]string{"--table", table, "--rank", "9", "--threads", "1"}, "ranks 0 to 7"},
		{[]string{"--table", table}, "--sync FILE"},
		{[]string{"--table", "/nonexistent.csv"}, "/nonexistent.csv"},
		{[]string{"--table", bad, "--threads", "8"}, "line 1"},
		{[]string{"--table", table, "--threads", "8", "--max-bytes", "10"}, "nothing to call"},
		{[]string{"--table", table, "--threads", "8", "--workload", bad}, "line 1: want COLLECTIVE,BYTES,WEIGHT"},
		{[]string{"--table", table, "--threads", "8", "--nnodes", "3"}, "--nnodes"},
		{[]string{"--table", table, "--threads", "8", "--log", "/nonexistent/log"}, "/nonexistent/log"},
	}
	for _, c := range cases {
		if r := run(t, nil, c.args...); r.code != 2 || !strings.Contains(r.stderr, c.want) {
			t.Errorf("%v: exit code %d, message %q, want 2 and %q", c.args, r.code, r.stderr, c.want)
		}
	}
}

// NCCL's search rules: a name, a path, none, nothing.
func TestSearchRules(t *testing.T) {
	args := []string{"--threads", "8", "--table", oneNode.write(t), "--calls", "10", "--summary", "--require-plugin"}
	both := func(value string) []string {
		return []string{"NCCL_TUNER_PLUGIN=" + value, "NCCL_PROFILER_PLUGIN=" + value, "DYNAMICCL_DIR=" + t.TempDir(), "NCCL_DEBUG=INFO"}
	}
	for _, env := range [][]string{
		both("dynamiccl"),
		{"NCCL_TUNER_PLUGIN=libnccl-tuner-dynamiccl.so", "NCCL_PROFILER_PLUGIN=libnccl-profiler-dynamiccl.so", "DYNAMICCL_DIR=" + t.TempDir()},
		both(filepath.Join(build, "libnccl-tuner-dynamiccl.so")),
	} {
		if r := mustRun(t, env, args...); !strings.Contains(r.stdout, `"tuner":"DynamICCL","profiler":"DynamICCL","tunerAbi":6,"profilerAbi":6`) {
			t.Errorf("%v: %s", env, r.stdout)
		}
	}
	if r := run(t, both("none"), args...); r.code != 4 || !strings.Contains(r.stderr, "NCCL_TUNER_PLUGIN") {
		t.Errorf("none: exit code %d: %s", r.code, r.stderr)
	}
	if r := run(t, both("absent"), args...); r.code != 4 || !strings.Contains(r.stderr, "Could not find: absent libnccl-tuner-absent.so") {
		t.Errorf("absent: exit code %d: %s", r.code, r.stderr)
	}
	// An empty tuner and no profiler is a run; an old profiler is taken when NCCL is old or the plugin is.
	if r := mustRun(t, []string{"NCCL_TUNER_PLUGIN=empty", "NCCL_PROFILER_PLUGIN=none"}, args[:len(args)-1]...); !strings.Contains(r.stdout, `"tuner":"Empty"`) {
		t.Errorf("empty: %s", r.stdout)
	}
	r := mustRun(t, both("dynamiccl"), append(args, "--nccl", "2.28.9", "--max-tuner-abi", "4", "--max-profiler-abi", "4")...)
	if !strings.Contains(r.stdout, `"tunerAbi":4,"profilerAbi":4`) {
		t.Errorf("NCCL 2.27: %s", r.stdout)
	}
}

// What the tuner answers is what runs, at the price of the table.
func TestChoiceRunsAndIsPriced(t *testing.T) {
	dir := t.TempDir()
	base := []string{"--rank", "0", "--window", "0", "--table", oneNode.write(t), "--workload", allReduceOnly(t), "--calls", "5",
		"--log", filepath.Join(dir, "r%r.log")}
	first := func() ranklog.Record {
		f, err := os.Open(filepath.Join(dir, "r0.log"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		d, err := ranklog.NewDecoder(f)
		if err != nil {
			t.Fatal(err)
		}
		rec, err := d.Next()
		if err != nil {
			t.Fatal(err)
		}
		return rec
	}
	us := func(v float64) uint32 { return uint32(math.Round(v * 1000)) }
	near := func(a, b uint32) bool { return max(a, b)-min(a, b) <= 1 }
	s := oneNode

	probeRun(t, 6, 6, 0, "", base...)
	if r := first(); r.Chosen || !near(r.CostNs, us(s.defaultUs(4<<20))) || r.CostNs != r.DefaultNs || r.BestNs >= r.DefaultNs {
		t.Errorf("untouched: %+v", r)
	}
	probeRun(t, 6, 6, 0, "0,0,8", base...)
	if r := first(); !r.Chosen || r.Algorithm != actions.Tree || r.Protocol != actions.LL || r.MaxChannels != 8 || r.Channels != 8 ||
		!near(r.CostNs, us(s.costUs(4<<20, 0, 0, 8))) {
		t.Errorf("Tree/LL/8: %+v", r)
	}
	// Between two recorded numbers of channels the cost is linear in log2: 12 lies log2(1.5) of the way from 8 to 16.
	probeRun(t, 6, 6, 0, "1,2,12", base...)
	low, high := s.costUs(4<<20, 1, 2, 8), s.costUs(4<<20, 1, 2, 16)
	if r := first(); r.MaxChannels != 12 || !near(r.CostNs, us(low+math.Log2(1.5)*(high-low))) {
		t.Errorf("Ring/Simple/12: %+v, want %d ns", r, us(low+math.Log2(1.5)*(high-low)))
	}
	probeRun(t, 6, 6, 0, "1,2,64", append(base, "--max-channels", "24")...)
	if r := first(); r.MaxChannels != 24 || r.Channels != 24 {
		t.Errorf("64 channels asked for on 24: %+v", r)
	}
	for choose, want := range map[string]string{"4,2,8": "marked -1", "0,0,-1": "returned an error", "0,0,65": "nChannels"} {
		if _, r := probeRunAny(t, 6, 6, 0, choose, base...); r.code != 4 || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: exit code %d: %s", choose, r.code, r.stderr)
		}
	}
}

// A user's NCCL_ALGO is NCCL's own business: the entries are gone before any tuner sees them.
func TestUserForcesAlgorithm(t *testing.T) {
	log := filepath.Join(t.TempDir(), "r%r.log")
	mustRun(t, []string{"NCCL_ALGO=Tree", "NCCL_PROTO=^LL128"}, "--threads", "8", "--table", oneNode.write(t), "--workload", allReduceOnly(t),
		"--calls", "50", "--log", log)
	rep := compare(t, strings.Replace(log, "%r", "%d", 1), 8)
	if b := rep.Phases[0].Buckets[0]; b.CostNs != b.DefaultNs || b.DefaultNs < b.BestNs {
		t.Errorf("costs %+v", b)
	}
	r := run(t, []string{"NCCL_ALGO=Star"}, "--threads", "8", "--table", oneNode.write(t), "--calls", "5")
	if r.code != 2 || !strings.Contains(r.stderr, "NCCL_ALGO=Star") {
		t.Errorf("exit code %d: %s", r.code, fmt.Sprint(r.stderr))
	}
}
