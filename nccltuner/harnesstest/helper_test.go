package harnesstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"dynamiccl/internal/testbuild"
	"dynamiccl/nccltuner/ranklog"
)

// build is where the harness and the plugins are.
var build string

func TestMain(m *testing.M) { testbuild.Main(m, &build, "../harness", "../plugin") }

// result is what one run of the harness left.
type result struct {
	code           int
	stdout, stderr string
}

// runLimit bounds one run of the harness.
func runLimit() time.Duration {
	if os.Getenv("DYN_LONG") == "1" {
		return 30 * time.Minute
	}
	return time.Minute
}

// command prepares a run that is bounded in time. env replaces the plugin variables: none are inherited.
func command(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), runLimit())
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, filepath.Join(build, "dynamiccl-rank"), args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "NCCL_") && !strings.HasPrefix(v, "DYNAMICCL_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+build)
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

func run(t *testing.T, env []string, args ...string) result {
	t.Helper()
	cmd := command(t, env, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("dynamiccl-rank %v: %v", args, err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func mustRun(t *testing.T, env []string, args ...string) result {
	t.Helper()
	r := run(t, env, args...)
	if r.code != 0 {
		t.Fatalf("dynamiccl-rank %v: exit code %d\n%s%s", args, r.code, r.stdout, r.stderr)
	}
	return r
}

// shape is the machine of a made-up table.
type shape struct {
	ranks, nodes int
	condition    string
	sizes        []int
	factor       float64 // on all costs
}

var (
	oneNode  = shape{ranks: 8, nodes: 1, condition: "quiet", sizes: []int{1024, 65536, 4 << 20}, factor: 1}
	twoNodes = shape{ranks: 4, nodes: 2, condition: "quiet", sizes: []int{1024, 65536, 4 << 20}, factor: 1}
)

// costUs is the made-up cost of a choice: every choice differs, channels matter, LL wins small and Simple large calls.
func (s shape) costUs(bytes, algorithm, protocol, channels int) float64 {
	us := 20 + float64(bytes)/1e4/float64(protocol+1)
	return s.factor * (us + 3*float64(algorithm) + 5*float64(protocol) + 8/float64(channels))
}

// defaultUs is the made-up cost of NCCL's default: above most choices.
func (s shape) defaultUs(bytes int) float64 { return s.factor * (40 + float64(bytes)/2e4) }

func (s shape) write(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("machine,nccl,nranks,nnodes,transport,condition,collective,bytes,path,algorithm,protocol,channels,median_us\n")
	transport := map[bool]string{true: "nvlink", false: "socket"}[s.nodes == 1]
	row := func(collective string, bytes int, choice string, us float64) {
		fmt.Fprintf(&b, "made-up,2.28.9,%d,%d,%s,%s,%s,%d,%s,%.3f\n", s.ranks, s.nodes, transport, s.condition, collective, bytes, choice, us)
	}
	for _, collective := range []string{"AllReduce", "AllGather", "ReduceScatter"} {
		for _, bytes := range s.sizes {
			row(collective, bytes, "default,-,-,-", s.defaultUs(bytes))
			for a, algorithm := range []string{"Tree", "Ring"} {
				if a == 0 && collective != "AllReduce" {
					continue
				}
				for p, protocol := range []string{"LL", "LL128", "Simple"} {
					for _, channels := range []int{1, 2, 4, 8, 16, 32} {
						row(collective, bytes, fmt.Sprintf("collective,%s,%s,%d", algorithm, protocol, channels), s.costUs(bytes, a, p, channels))
					}
				}
			}
		}
	}
	path := filepath.Join(t.TempDir(), fmt.Sprintf("%d-%s.csv", s.ranks, s.condition))
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func testSeed(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(1)
	if s := os.Getenv("TEST_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("TEST_SEED=%s: %v", s, err)
		}
		seed = n
	}
	t.Logf("TEST_SEED=%d", seed)
	return seed
}

// compare reads the logs of ranks 0 to n-1 and demands that they agree.
func compare(t *testing.T, pattern string, n int) ranklog.Report {
	t.Helper()
	var paths []string
	for r := range n {
		paths = append(paths, fmt.Sprintf(pattern, r))
	}
	rep, err := ranklog.CompareFiles(paths...)
	if err != nil {
		t.Fatal(err)
	}
	if rep.Disagreements != 0 {
		t.Fatalf("%d disagreements: %v", rep.Disagreements, rep.Details)
	}
	return rep
}
