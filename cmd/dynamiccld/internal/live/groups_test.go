package live

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dynamiccl/internal/testbuild"
)

// groups runs four ranks with communicators that overlap, in groups that each rank calls in an order of its own
// (nccltuner/fakegpu/test/groups.c), while a daemon tries whatever there is: until ranks have differed in so many groups in what our kernels
// ran. Gives what it said and its exit code: 1, something is wrong, 3, ranks wait for each other.
func groups(t *testing.T, library string, different, hangS int, environ ...string) (said string, code int) {
	t.Helper()
	r := newRig(t, "--learner", "thompson", "--explore-budget", "50%", "--sample-every", "1")
	r.start()
	fake := r.standIns()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(fake, "groups"), "1", fmt.Sprint(different), fmt.Sprint(hangS))
	// Times at which neither NCCL nor our kernels are the choice for all.
	cmd.Env = append(append(r.programEnv(library+":"+filepath.Join(fake, "libnccl.so.2"), r.build.Table("h200x4-nvlink-quiet")), "FAKEGPU_KERNEL_US=4"), environ...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Fatalf("not over after four minutes: %s", out)
	}
	if s := r.status(); s.Core.Disagreed != 0 {
		t.Errorf("%+v", s.Core)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// Of calls that two ranks share the same comes first on both, whatever else these have in the group and who runs it.
func TestGroupsOfOverlappingCommunicators(t *testing.T) {
	t.Parallel()
	said, code := groups(t, filepath.Join(built(t).Lib, "libdynamiccl.so"), 300, 20)
	t.Log(said)
	if code != 0 || strings.Contains(said, " 0 replays") {
		t.Errorf("exit code %d", code)
	}
}

// Our kernels in the order of the calls, and one wrong element: both are found.
func TestGroupsFindPlantedMistakes(t *testing.T) {
	t.Parallel()
	build, dir := t.TempDir(), t.TempDir()
	objects, err := filepath.Abs(filepath.Join(checkout, ".cache", "preload"))
	if err != nil {
		t.Fatal(err)
	}
	preload := filepath.Join(checkout, "nccltuner", "preload")
	if err := errors.Join(os.Mkdir(filepath.Dir(testbuild.Objects(build, preload)), 0o700), os.Symlink(objects, testbuild.Objects(build, preload))); err != nil {
		t.Fatal(err)
	}
	library := testbuild.MistakenPreload(t, build, dir, preload, preload, "device_groups.c", "while (*at != NULL && (*at)->id <= b->id)", "while (*at != NULL)")
	if said, code := groups(t, library, 1<<20, 2); code != 3 {
		t.Errorf("the order of calls: exit code %d: %s", code, said)
	}
	said, code := groups(t, filepath.Join(built(t).Lib, "libdynamiccl.so"), 1<<20, 20, "FAKEGPU_FAULT=wrong:rank=1,from=100")
	if code != 1 || !strings.Contains(said, ", want ") {
		t.Errorf("a wrong element: exit code %d: %s", code, said)
	}
}
