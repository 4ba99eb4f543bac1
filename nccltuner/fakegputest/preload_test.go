package fakegputest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dynamiccl/nccltuner/internal/testbuild"
)

// lsa runs nccltuner/preload's test of calls that become kernels, in rank processes, with the driver that runs them.
func lsa(t *testing.T, program string, env ...string) {
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
	// What people read when a rank dies, once in each that waits for it.
	if n := strings.Count(string(said), "is dead: kernels of this communicator of 3 ranks give up"); n != 2 {
		t.Errorf("said %d times that a rank is dead:\n%s", n, said)
	}
	if files, err := os.ReadDir(strings.TrimPrefix(cmd.Env[len(cmd.Env)-1], "TMPDIR=")); err != nil || len(files) > 0 {
		t.Errorf("%v stayed, %v", files, err)
	}
}

func TestDevicePath(t *testing.T) {
	lsa(t, "test_lsa", "LD_PRELOAD="+filepath.Join(build, "libdynamiccl.so"))
}

// The library linked in, under the thread sanitizer.
func TestDevicePathThreads(t *testing.T) {
	lsa(t, "threads/test_lsa", "TSAN_OPTIONS=die_after_fork=0 atexit_sleep_ms=0")
}
