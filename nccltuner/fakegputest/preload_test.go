package fakegputest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"dynamiccl/internal/testbuild"
)

// lsa runs nccltuner/preload's test of calls that become kernels, in rank processes, with the driver that runs them.
func lsa(t *testing.T, deaths int, program string, env ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	folder := filepath.Join(testbuild.Objects(build, "../preload"), "test")
	cmd := exec.CommandContext(ctx, filepath.Join(folder, program), folder, filepath.Join(build, "libcuda.so.1"))
	cmd.Env = append(env, "TMPDIR="+t.TempDir())
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if files, err := os.ReadDir(strings.TrimPrefix(cmd.Env[len(cmd.Env)-1], "TMPDIR=")); err != nil || len(files) > 0 {
		t.Errorf("%v stayed, %v", files, err)
	}
	// What people read when a rank dies, once in each that waits for it.
	if n := strings.Count(string(said), "is dead: kernels of this communicator of 3 ranks give up"); n != deaths {
		t.Errorf("said %d times that a rank is dead:\n%s", n, said)
	}
}

func TestDevicePath(t *testing.T) {
	lsa(t, 2, "test_lsa", "LD_PRELOAD="+filepath.Join(build, "libdynamiccl.so"))
}

// The library linked in, under the thread sanitizer.
func TestDevicePathThreads(t *testing.T) {
	lsa(t, 2, "threads/test_lsa", "TSAN_OPTIONS=die_after_fork=0 atexit_sleep_ms=0")
}

// What is known of a communicator when the program gets it, and what kernels in graphs say of their times.
func TestMaking(t *testing.T) {
	lsa(t, 0, "test_making", "LD_PRELOAD="+filepath.Join(build, "libdynamiccl.so"))
}

func TestMakingThreads(t *testing.T) {
	lsa(t, 0, "threads/test_making", "TSAN_OPTIONS=die_after_fork=0 atexit_sleep_ms=0")
}

// What libdynamiccl.so offers to programs that know it.
func TestAPI(t *testing.T) {
	lsa(t, 2, "test_api", "LD_PRELOAD="+filepath.Join(build, "libdynamiccl.so"))
}

func TestAPIThreads(t *testing.T) {
	lsa(t, 2, "threads/test_api", "TSAN_OPTIONS=die_after_fork=0 atexit_sleep_ms=0")
}

// What a process says at its end of the calls that it made.
func TestTrace(t *testing.T) {
	folder := filepath.Join(testbuild.Objects(build, "../preload"), "test")
	for trace, want := range map[string]string{
		"1": "ncclAllGather: 3 calls, 0 run by our kernels\nncclBcast: 1 calls, 0 run by our kernels\n",
		"a": "",
	} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(folder, "test_api"), folder, filepath.Join(build, "libcuda.so.1"), "trace")
		cmd.Env = []string{"LD_PRELOAD=" + filepath.Join(build, "libdynamiccl.so"), "DYNAMICCL_COUNT_CALLS=" + trace}
		said, err := cmd.CombinedOutput()
		prefix := fmt.Sprintf("dynamiccl: process %d: ", cmd.ProcessState.Pid())
		lines := slices.Sorted(strings.Lines(strings.ReplaceAll(string(said), prefix, "")))
		if got := strings.Join(lines, ""); err != nil || got != want {
			t.Errorf("DYNAMICCL_COUNT_CALLS=%s: %v, %q, want %q", trace, err, got, want)
		}
	}
}
