package fakegputest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"dynamiccl/internal/testbuild"
)

// ranks runs a program of nccltuner/preload's tests, in rank processes, with the driver that runs their kernels; what it leaves is in dir.
func ranks(t *testing.T, dir string, limit time.Duration, program string, env ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	folder := filepath.Join(testbuild.Objects(build, "../preload"), "test")
	cmd := testbuild.Command(ctx, filepath.Join(folder, program), folder, filepath.Join(build, "libcuda.so.1"))
	cmd.Env = append(env, "TMPDIR="+dir)
	said, err := cmd.CombinedOutput()
	return string(said), err
}

// lsa runs nccltuner/preload's test of calls that become kernels, in rank processes, with the driver that runs them.
func lsa(t *testing.T, deaths int, program string, env ...string) {
	t.Helper()
	t.Parallel() // most of their time is waiting for ranks that come late, or not at all
	dir := t.TempDir()
	said, err := ranks(t, dir, 8*time.Minute, program, env...)
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("%v stayed, %v", files, err)
	}
	// What people read when a rank dies, once in each that waits for it.
	if n := strings.Count(said, "is dead: kernels of this communicator of 3 ranks give up"); n != deaths {
		t.Errorf("said %d times that a rank is dead:\n%s", n, said)
	}
}

func TestDevicePath(t *testing.T) {
	lsa(t, 4, "test_lsa", "LD_PRELOAD="+filepath.Join(build, "libdynamiccl.so"))
}

// The library linked in, under the thread sanitizer.
func TestDevicePathThreads(t *testing.T) {
	lsa(t, 4, "threads/test_lsa", "TSAN_OPTIONS=die_after_fork=0 atexit_sleep_ms=0")
}

// Kernels that write into buffers which the program has registered.
func TestDirect(t *testing.T) {
	lsa(t, 0, "test_direct", "LD_PRELOAD="+filepath.Join(build, "libdynamiccl.so"))
}

func TestDirectThreads(t *testing.T) {
	lsa(t, 0, "threads/test_direct", "TSAN_OPTIONS=die_after_fork=0 atexit_sleep_ms=0")
}

// What is known of a communicator when the program gets it, and what kernels in graphs say of their times.
func TestMaking(t *testing.T) {
	lsa(t, 0, "test_making", "LD_PRELOAD="+filepath.Join(build, "libdynamiccl.so"))
}

func TestMakingThreads(t *testing.T) {
	lsa(t, 0, "threads/test_making", "TSAN_OPTIONS=die_after_fork=0 atexit_sleep_ms=0")
}

// What samples of timed calls say of their send buffers.
func TestStamps(t *testing.T) {
	lsa(t, 0, "test_stamps", "LD_PRELOAD="+filepath.Join(build, "libdynamiccl.so"))
}

func TestStampsThreads(t *testing.T) {
	lsa(t, 0, "threads/test_stamps", "TSAN_OPTIONS=die_after_fork=0 atexit_sleep_ms=0")
}

// Which calls are on registered memory, and what NCCL is told by name to run.
func TestNamed(t *testing.T) {
	lsa(t, 0, "test_named", "LD_PRELOAD="+filepath.Join(build, "libdynamiccl.so"))
}

func TestNamedThreads(t *testing.T) {
	lsa(t, 0, "threads/test_named", "TSAN_OPTIONS=die_after_fork=0 atexit_sleep_ms=0")
}

// What libdynamiccl.so offers to programs that know it.
func TestAPI(t *testing.T) {
	lsa(t, 2, "test_api", "LD_PRELOAD="+filepath.Join(build, "libdynamiccl.so"))
}

func TestAPIThreads(t *testing.T) {
	lsa(t, 2, "threads/test_api", "TSAN_OPTIONS=die_after_fork=0 atexit_sleep_ms=0")
}

// The life of GIN on a communicator, over the stand-ins for the driver and for NCCL.
func gin(t *testing.T, program string, env ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	folder := filepath.Join(testbuild.Objects(build, "../preload"), "test")
	table, err := filepath.Abs("../../tuner/tunersim/testdata/measurements/h200x2-nvlink-quiet.csv")
	if err != nil {
		t.Fatal(err)
	}
	cmd := testbuild.Command(ctx, filepath.Join(folder, program), filepath.Join(build, "libcuda.so.1"), filepath.Join(build, "libnccl.so.2"))
	cmd.Env = append(env, "GIN_CARRIER="+filepath.Join(folder, "libnccl-net-dynamiccl-carrier.so"), "TMPDIR="+t.TempDir(), "FAKEGPU_TABLE="+table, "FAKEGPU_DIR="+t.TempDir())
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	for what, want := range map[string]int{
		"no GIN for this communicator: rank 1 was waited for in vain: its signal did not come; NCCL runs its calls": 2 + 1 + 1,
		"no GIN for this communicator: ncclDevCommCreate: invalid usage: ":                                          3, // where NCCL itself fails
		"no GIN by Proxy for this communicator: rank 1 was waited for in vain: its signal did not come":             2, // as above, of 2.32.3
		"no GIN by Proxy for this communicator: ncclDevCommCreate: invalid usage: ":                                 3 + 1,
		"no GIN by GDAKI for this communicator: rank 1 was waited for in vain: its signal did not come":             2,
		"no GIN by GDAKI for this communicator: ncclDevCommCreate: invalid usage: ":                                 1,
		"not done within 2 s: a rank did not come so far":                                                           2 + 2,
		"NCCL has none of the types that the kernels know here":                                                     2,
		"its kernels do not load; NCCL runs its calls":                                                              2,
		"is dead: kernels of this communicator of 3 ranks give up":                                                  2,
		"rank 2, on another host, is gone: kernels of this communicator of 3 ranks give up":                         2,
		"rank 2 was waited for in vain: its signal did not come: kernels of this communicator of 3 ranks give up":   2 + 2,
		"which ranks on other hosts do not know: no kernels over GIN":                                               4,
		"NCCL_GIN_NCONTEXTS is not the same on all ranks; NCCL runs its calls":                                      2 + 2,
		"NCCL_GIN_NCONTEXTS, which ranks on other hosts do not know, is passed over: 4 contexts":                    2,
		"memory of 16 communicators has stayed behind them":                                                         2,
		"is dead: kernels of this communicator of 4 ranks give up":                                                  3,
	} {
		if n := strings.Count(string(said), what); n != want {
			t.Errorf("%q is said %d times, want %d:\n%s", what, n, want, said)
		}
	}
}

// Most of its time is waiting for ranks that do not come.
func TestGIN(t *testing.T) {
	t.Parallel()
	gin(t, "test_gin")
}

// What threads of the stand-ins say to each other the sanitizer does not see.
func TestGINThreads(t *testing.T) {
	t.Parallel()
	gin(t, "threads/test_gin", "TSAN_OPTIONS=die_after_fork=0 atexit_sleep_ms=0 ignore_noninstrumented_modules=1")
}

// What a process says at its end of the calls that it made, and a child of its own.
func TestTrace(t *testing.T) {
	folder := filepath.Join(testbuild.Objects(build, "../preload"), "test")
	for trace, want := range map[string]string{
		"1": "another: ncclReduce: 1 calls, 0 run by our kernels\nncclAllGather: 3 calls, 0 run by our kernels\nncclBcast: 1 calls, 0 run by our kernels\n",
		"a": "",
	} {
		cmd := testbuild.Command(t.Context(), filepath.Join(folder, "test_api"), folder, filepath.Join(build, "libcuda.so.1"), "trace")
		cmd.Env = []string{"LD_PRELOAD=" + filepath.Join(build, "libdynamiccl.so"), "DYNAMICCL_COUNT_CALLS=" + trace}
		said, err := cmd.CombinedOutput()
		prefix := fmt.Sprintf("dynamiccl: process %d: ", cmd.ProcessState.Pid())
		own := strings.ReplaceAll(string(said), prefix, "")
		lines := slices.Sorted(strings.Lines(regexp.MustCompile(`dynamiccl: process \d+: `).ReplaceAllString(own, "another: ")))
		if got := strings.Join(lines, ""); err != nil || got != want {
			t.Errorf("DYNAMICCL_COUNT_CALLS=%s: %v, %q, want %q", trace, err, got, want)
		}
	}
}
