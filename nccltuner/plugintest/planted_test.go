package plugintest

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"dynamiccl/internal/testbuild"
)

// planted builds a test program of folder with its sources, of which file has a mistake for what is there once, and runs it: what it said,
// and how it ended.
func planted(t *testing.T, folder, program string, sources []string, file, is, mistake string, args ...string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	path := testbuild.Mistaken(t, dir, folder, file, is, mistake)
	flags := []string{"-std=gnu11", "-O2", "-D_GNU_SOURCE", "-w", "-fvisibility=hidden", "-Wl,--export-dynamic-symbol=dynamiccl_preload", "-I", folder, "-o", filepath.Join(dir, "test"), filepath.Join(folder, "test", program)}
	for _, name := range sources {
		if name == file {
			flags = append(flags, path)
		} else {
			flags = append(flags, filepath.Join(folder, name))
		}
	}
	if out, err := exec.CommandContext(t.Context(), cmp.Or(os.Getenv("CC"), "gcc"), append(flags, "-ldl", "-pthread")...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	run := exec.CommandContext(ctx, filepath.Join(dir, "test"), args...)
	run.Env = []string{"TEST_DIR=" + dir}
	out, err := run.CombinedOutput()
	return string(out), err
}
