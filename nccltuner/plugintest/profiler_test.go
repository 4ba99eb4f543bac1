package plugintest

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The tests of the profiler half are a list of their own, kept beside their programs.
func TestProfilerHalf(t *testing.T) {
	list, err := os.ReadFile("../plugin/test/profiler_tests.mk")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`(?m)^PROFILER_TESTS := (.*)$`).FindSubmatch(list)
	if names == nil {
		t.Fatal("profiler_tests.mk names no PROFILER_TESTS")
	}
	for _, name := range strings.Fields(string(names[1])) {
		program(t, name)
	}
}
