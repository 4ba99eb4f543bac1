package fakegputest

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dynamiccl/internal/testbuild"
)

// Whose times a sample of a timed call has: whatever is mistaken must be found.
func TestStampsFindPlantedMistakes(t *testing.T) {
	const preload, host = "../preload", "../../kernels/host"
	for _, m := range []struct{ folder, file, is, mistake string }{
		{host, "stamps.c", "scratch->numTimed % DYN_TIMED_CALLS", "0"},
		{host, "stamps.c", "DYN_STAMP_TIMED | scratch->numTimed++", "DYN_STAMP_TIMED"},
		{host, "stamps.c", "saturated(s.signalNs - s.counterNs)", "saturated(s.counterNs - s.beginNs)"},
		{preload, "poller.c", "signal - tail : signal", "tail : signal"},
		{preload, "probe.c", "probe->timed.timing.at = NULL;", ""},
		{preload, "device.c", "told ? &timed->timing : NULL", "NULL"},
		{preload, "device.c", "timed != NULL && timed->asked == 1", "timed != NULL && timed->asked == 0"},
	} {
		t.Run(m.file+" "+m.is, func(t *testing.T) {
			t.Parallel()
			// Some need two ranks to be in step, which a busy machine has them not be now and then.
			findsPreloadMistake(t, "test_stamps", m.folder, m.file, m.is, m.mistake, 3, 5*time.Minute)
		})
	}
}

// findsPreloadMistake has a C test under the preload library fail, in so many tries and within the limit, where text stands in one of its sources
// for what is there once.
func findsPreloadMistake(t *testing.T, program, source, file, is, mistake string, tries int, limit time.Duration) {
	t.Helper()
	const preload = "../preload"
	dir := t.TempDir()
	library := testbuild.MistakenPreload(t, build, dir, preload, source, file, is, mistake)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	folder := filepath.Join(testbuild.Objects(build, preload), "test")
	for try := 1; ; try++ {
		run := testbuild.Command(ctx, filepath.Join(folder, program), folder, filepath.Join(build, "libcuda.so.1"))
		run.Env = []string{"TMPDIR=" + dir, "LD_PRELOAD=" + library, "TEST_ALARM_S=15"}
		out, err := run.CombinedOutput()
		if err != nil && ctx.Err() == nil && strings.Contains(string(out), "test/") {
			return
		}
		if try == tries {
			t.Fatalf("not found: %v: %s", err, out)
		}
	}
}
