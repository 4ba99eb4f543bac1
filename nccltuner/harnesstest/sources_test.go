package harnesstest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Every C source names its license. Reading them here also tells the go command that results depend on them: what make
// reads it does not see, and would answer from its cache after a change.
func TestSources(t *testing.T) {
	var files []string
	for _, pattern := range []string{"../*.h", "../harness/*", "../plugin/*.[ch]", "../plugin/Makefile", "testdata/*.c"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}
		files = append(files, found...)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		top := strings.SplitN(string(text), "\n", 3)
		if !slices.ContainsFunc(top[:min(2, len(top))], func(l string) bool { return strings.Contains(l, "SPDX-License-Identifier: Apache-2.0") }) {
			t.Errorf("%s: no SPDX-License-Identifier at the top", name)
		}
	}
}
