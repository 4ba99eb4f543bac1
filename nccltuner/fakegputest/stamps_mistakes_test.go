package fakegputest

import (
	"cmp"
	"context"
	"os"
	"os/exec"
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
			dir := t.TempDir()
			source, err := os.ReadFile(filepath.Join(m.folder, m.file))
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(source), m.is); n != 1 {
				t.Fatalf("%q is there %d times", m.is, n)
			}
			planted, library := filepath.Join(dir, m.file), filepath.Join(dir, "libdynamiccl.so")
			if err := os.WriteFile(planted, []byte(strings.Replace(string(source), m.is, m.mistake, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			objects, err := filepath.Glob(filepath.Join(testbuild.Objects(build, preload), "*.o"))
			if err != nil || len(objects) == 0 {
				t.Fatalf("no objects: %v", err)
			}
			for _, folder := range []string{"host", "hosts"} {
				more, _ := filepath.Glob(filepath.Join(testbuild.Objects(build, preload), folder, "*.o"))
				objects = append(objects, more...)
			}
			instead := filepath.Join(testbuild.Objects(build, preload), map[string]string{preload: "", host: "host"}[m.folder], strings.TrimSuffix(m.file, ".c")+".o")
			args := []string{"-std=gnu11", "-D_GNU_SOURCE", "-w", "-O1", "-fPIC", "-fvisibility=hidden", "-ftls-model=initial-exec", "-shared", "-Wl,-Bsymbolic", "-iquote", m.folder, "-o", library, planted}
			for _, o := range objects {
				if o != instead {
					args = append(args, o)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			if out, err := exec.CommandContext(ctx, cmp.Or(os.Getenv("CC"), "gcc"), append(args, "-pthread", "-ldl")...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			folder := filepath.Join(testbuild.Objects(build, preload), "test")
			for try := 1; ; try++ { // some need two ranks to be in step, which a busy machine has them not be now and then
				run := exec.CommandContext(ctx, filepath.Join(folder, "test_stamps"), folder, filepath.Join(build, "libcuda.so.1"))
				run.Env = []string{"TMPDIR=" + dir, "LD_PRELOAD=" + library, "TEST_ALARM_S=15"}
				out, err := run.CombinedOutput()
				if err != nil && ctx.Err() == nil && strings.Contains(string(out), "test/") {
					return
				}
				if try == 3 {
					t.Fatalf("not found: %v: %s", err, out)
				}
			}
		})
	}
}
