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

	"dynamiccl/internal/testbuild"
)

// planted links a test program of rest, which are sources and objects, and of a file of folder with a mistake for what is there once. What is
// compiled here is not optimised: it would take four times as long.
// What it gives runs the program: what it said, and how it ended.
func planted(t *testing.T, folder string, rest []string, file, is, mistake string) func(args ...string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "test")
	mistaken := testbuild.Mistaken(t, dir, folder, file, is, mistake)
	if include := `#include "` + file + `"`; strings.HasSuffix(file, ".h") {
		mistaken = testbuild.Mistaken(t, dir, folder, sourceOf(file), include, include) // a copy beside it finds this one
	}
	flags := []string{"-std=gnu11", "-D_GNU_SOURCE", "-w", "-fvisibility=hidden", "-Wl,--export-dynamic-symbol=dynamiccl_preload", "-Wl,--export-dynamic-symbol=ncclGetVersion", "-I", folder, "-o", program, mistaken}
	if out, err := exec.CommandContext(t.Context(), cmp.Or(os.Getenv("CC"), "gcc"), append(append(flags, rest...), "-ldl", "-pthread")...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return func(args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		run := testbuild.Command(ctx, program, args...)
		run.Env = []string{"TEST_DIR=" + dir, "TEST_ALARM_S=20"}
		out, err := run.CombinedOutput()
		return string(out), err
	}
}

// sourceOf is what is compiled: of a header the one file that has a mistake in it.
func sourceOf(file string) string {
	switch file {
	case "coming.h":
		return "tuner.c"
	case "nccl_env.h":
		return "record.c"
	}
	return file
}

// plantedPlugin runs a test program of the plugin, of whose objects one is replaced: compiling all of them anew for each mistake takes long.
func plantedPlugin(t *testing.T, program, file, is, mistake string) (string, error) {
	t.Helper()
	rest := []string{filepath.Join(pluginTests(), program+".o"), filepath.Join(pluginTests(), "support.o")}
	objects, err := filepath.Glob(filepath.Join(testbuild.Objects(build, "../plugin"), "*.o"))
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, o := range objects {
		if filepath.Base(o) == strings.TrimSuffix(sourceOf(file), ".c")+".o" {
			found = true
		} else {
			rest = append(rest, o)
		}
	}
	if !found {
		t.Fatalf("%s is not of the plugin", file)
	}
	return planted(t, "../plugin", rest, file, is, mistake)()
}

// findsPluginMistake has a test program of the plugin fail at one of its checks, with a mistake planted in a file.
func findsPluginMistake(t *testing.T, program, file, is, mistake string) {
	t.Helper()
	if said, err := plantedPlugin(t, program, file, is, mistake); err == nil || !strings.Contains(said, "test/") {
		t.Errorf("not found: %v\n%s", err, said)
	}
}
