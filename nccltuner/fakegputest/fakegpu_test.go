package fakegputest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dynamiccl/internal/testbuild"
)

// build is where the libraries are, and below it the test programs.
var build string

func TestMain(m *testing.M) { testbuild.Main(m, &build, "../fakegpu tests", "../preload tests") }

const table = "../../tuner/tunersim/testdata/measurements/h200x2-nvlink-quiet.csv"

// program runs one C test, which passes by exiting 0; nothing of the environment chooses what the stand-ins do.
func program(t *testing.T, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	cmd := testbuild.Command(ctx, filepath.Join(testbuild.Objects(build, "../fakegpu"), "test", name), args...)
	cmd.Env = []string{"LD_LIBRARY_PATH=" + build, "FAKEGPU_TABLE=" + table, "TSAN_OPTIONS=die_after_fork=0 atexit_sleep_ms=0", "TEST_SEED=" + os.Getenv("TEST_SEED")}
	said, err := cmd.CombinedOutput()
	t.Logf("%s", said)
	if err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

func batches(short string) string {
	if os.Getenv("DYN_LONG") != "" {
		return "400"
	}
	return short
}

// 2, 3 and 4 processes with each other's memory: every element of some hundred calls, on streams and in graphs.
func TestRanks(t *testing.T) { program(t, "ranks_test", batches("12")) }

// Ranks of one process, in one thread and in one each.
func TestOneProcess(t *testing.T) { program(t, "one_test", batches("12")) }

// Memory and its handles: what other processes see, and what is refused.
func TestMemory(t *testing.T) { program(t, "memory_test") }

// What is refused of launches, events and captures, and what time says.
func TestLaunches(t *testing.T) { program(t, "launch_test") }

// Between NCCL's collectives.
func TestAmongCollectives(t *testing.T) { program(t, "nccl_test") }

// The same under the thread sanitizer, with the library linked in.
func TestThreads(t *testing.T) {
	program(t, "threads/ranks_test", batches("6"))
	program(t, "threads/one_test", batches("6"))
	program(t, "threads/memory_test")
	program(t, "threads/launch_test")
}

// The library that programs load as CUDA's driver shows what a driver has, and brings nothing along.
func TestLibrary(t *testing.T) {
	shows, needs, _ := testbuild.Library(t, filepath.Join(build, "libcuda.so.1"))
	for _, name := range needs {
		if !strings.HasPrefix(name, "libc.so") && !strings.HasPrefix(name, "ld-linux") {
			t.Errorf("it needs %s", name)
		}
	}
	for _, name := range shows {
		if !strings.HasPrefix(name, "cu") && !strings.HasPrefix(name, "fakegpu_") {
			t.Errorf("it shows %s", name)
		}
	}
}
