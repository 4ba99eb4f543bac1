package fakegputest

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dynamiccl/internal/testbuild"
)

// Of which communicator the plugin is told what a group has: whatever is mistaken must be found.
func TestGathersFindPlantedMistakes(t *testing.T) {
	const preload = "../preload"
	for _, m := range []struct{ file, is, mistake string }{
		{"gathers.c", "    differs |= in == 0 || in >= MOST_INSIDE || (known != 0 && in != known);\n", ""},
		{"gathers.c", "(known != 0 && in != known)", "false"},
		{"gathers.c", "    known = in;\n", ""},
		{"gathers.c", "differs || known == 0 ? 0 :", "known == 0 ? 0 :"},
		{"gathers.c", "differs || known == 0 ? 0 :", "differs ? 0 :"},
		{"gathers.c", "if (had) i = MOST;", ""},
		{"calls.c", "state != IN_PROGRESS) dyn", "true) dyn"},
		{"calls.c", "if (FUNC == DYN_ALL_GATHER &&", "if (false &&"},
		{"making.c", "found->returned ? found->left : comm_of(found)", "comm_of(found)"},
		{"making.c", "found->returned ? found->left : comm_of(found)", "found->late != NULL ? NULL : comm_of(found)"},
		{"making.c", "found->returned ? found->left : comm_of(found)", "found->late != NULL ? found->late : comm_of(found)"}, // a split's parent
		{"making.c", "  if (of != NULL && found != NULL) found->gathers = of;\n", ""},
		{"making.c", "else if (m->gathers != NULL) dyn_gathers_lost(m->gathers);", ""},
		{"making.c", "found != NULL && found->late == NULL ? dyn_bound_reserve", "found != NULL ? dyn_bound_reserve"},
	} {
		t.Run(m.file+" "+m.is, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			library := testbuild.MistakenPreload(t, build, dir, preload, preload, m.file, m.is, m.mistake)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			folder := filepath.Join(testbuild.Objects(build, preload), "test")
			run := exec.CommandContext(ctx, filepath.Join(folder, "test_making"), folder, filepath.Join(build, "libcuda.so.1"))
			run.Env = []string{"TMPDIR=" + dir, "LD_PRELOAD=" + library, "TEST_ALARM_S=15"}
			if out, err := run.CombinedOutput(); err == nil || ctx.Err() != nil || !strings.Contains(string(out), "test/") {
				t.Errorf("not found: %v: %s", err, out)
			}
		})
	}
}
