package plugintest

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// mistaken writes a file of folder into dir, with a mistake for what is there once.
func mistaken(t *testing.T, dir, folder, file, is, mistake string) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(folder, file))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), is); n != 1 {
		t.Fatalf("%q is there %d times", is, n)
	}
	path := filepath.Join(dir, file)
	if err := os.WriteFile(path, []byte(strings.Replace(string(source), is, mistake, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// planted builds a test program of folder with its sources, of which file has a mistake for what is there once, and runs it: what it said,
// and how it ended.
func planted(t *testing.T, folder, program string, sources []string, file, is, mistake string, args ...string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	path := mistaken(t, dir, folder, file, is, mistake)
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
