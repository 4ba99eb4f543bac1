package harnesstest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// probe compiles the plugin that writes down its calls, exporting one tuner and one profiler version.
func probe(t *testing.T, tuner, profiler int) string {
	t.Helper()
	path := filepath.Join(build, fmt.Sprintf("libprobe-%d-%d.so", tuner, profiler))
	if _, err := os.Stat(path); err == nil {
		return path
	}
	cmd := exec.Command("gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-fvisibility=hidden", "-fPIC", "-shared",
		fmt.Sprintf("-DTUNER=%d", tuner), fmt.Sprintf("-DPROFILER=%d", profiler), "-o", path, "testdata/probe.c", "-pthread")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// NCCL's activation mask bits.
const (
	maskGroup, maskColl, maskProxyOp, maskKernelCh  = 1, 2, 8, 64
	maskGroupApi, maskCollApi, maskProxyStep        = 256, 512, 16
	maskAll                                         = maskGroup | maskColl | maskProxyOp | maskProxyStep | maskKernelCh | maskGroupApi | maskCollApi
	stateGroupStartStop, stateGroupEndStart, chStop = 23, 24, 22
)

// line is one call that the probe got.
type line struct {
	thread, what string
	nowNs        int64
	f            map[string]string
}

func (l line) num(t *testing.T, key string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(l.f[key], 0, 64)
	if err != nil {
		t.Fatalf("%s: %s: %v", l, key, err)
	}
	return n
}

func (l line) String() string { return fmt.Sprintf("%s %v", l.what, l.f) }

// probeRun runs one rank with the probe and gives what it was told, one slice a process.
func probeRun(t *testing.T, tuner, profiler, mask int, choose string, args ...string) []line {
	t.Helper()
	lines, r := probeRunAny(t, tuner, profiler, mask, choose, args...)
	if r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	return lines
}

func probeRunAny(t *testing.T, tuner, profiler, mask int, choose string, args ...string) ([]line, result) {
	t.Helper()
	lib, out := probe(t, tuner, profiler), filepath.Join(t.TempDir(), "probe.%d")
	env := []string{"NCCL_TUNER_PLUGIN=" + lib, "NCCL_PROFILER_PLUGIN=" + lib, "PROBE_OUT=" + out, "PROBE_MASK=" + strconv.Itoa(mask)}
	if choose != "" {
		env = append(env, "PROBE_CHOOSE="+choose)
	}
	r := run(t, env, args...)
	files, err := filepath.Glob(strings.Replace(out, "%d", "*", 1))
	if err != nil || len(files) != 1 {
		t.Fatalf("probe files %v: %v; exit code %d: %s", files, err, r.code, r.stderr)
	}
	f, err := os.Open(files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var lines []line
	for s := bufio.NewScanner(f); s.Scan(); {
		words := strings.Fields(s.Text())
		now, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		l := line{thread: words[0], nowNs: now, what: words[2], f: map[string]string{}}
		for _, w := range words[3:] {
			key, value, _ := strings.Cut(w, "=")
			l.f[key] = value
		}
		lines = append(lines, l)
	}
	return lines, r
}

func only(lines []line, keep func(line) bool) []line {
	var out []line
	for _, l := range lines {
		if keep(l) {
			out = append(out, l)
		}
	}
	return out
}

func starts(lines []line, kind int) []line {
	return only(lines, func(l line) bool { return l.what == "start" && l.f["type"] == strconv.Itoa(kind) })
}
