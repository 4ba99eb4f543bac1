package programtest

import (
	"context"
	"os"
	"testing"
	"time"

	"dynamiccl/internal/testbuild"
)

// The driver and the scripts that use it, with programs that only print.
func TestScripts(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	cmd := testbuild.Command(ctx, "python3", "-W", "error", "-m", "unittest", "-v", "program_test", "program_scripts_test", "program_nccltests_test", "program_kill_test", "program_perturbed_test", "live_test", "all_test", "beside_test", "where_test", "kernels_test", "threads_test", "samples_check_test", "gin_trials_count_test", "replay_changes_test", "mix_scripts_test")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatalf("python3 -m unittest: %v", err)
	}
}
