package plugintest

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"dynamiccl/internal/testbuild"
)

// The tests of the profiler half are a list of their own, kept beside their programs. Each must say that it passed: a
// list that make does not find is no success.
func TestProfilerHalf(t *testing.T) {
	list, err := os.ReadFile("../plugin/test/profiler_tests.mk")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`(?m)^PROFILER_TESTS := (.*)$`).FindSubmatch(list)
	if names == nil {
		t.Fatal("profiler_tests.mk names no PROFILER_TESTS")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "make", "-j2", "--no-print-directory", "-C", "../plugin", "BUILD="+testbuild.Objects(build, "../plugin"),
		"LIB="+build, "check-profiler")
	cmd.Env = slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, "NCCL_") || strings.HasPrefix(e, "DYNAMICCL_") || strings.HasPrefix(e, "MAKE")
	})
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("make check-profiler: %v\n%s", err, out)
	}
	lines := strings.Split(string(out), "\n")
	for _, name := range strings.Fields(string(names[1])) {
		if !slices.Contains(lines, "ok "+name) {
			t.Errorf("%s did not pass", name)
		}
	}
}
