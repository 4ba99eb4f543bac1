package testbuild

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Sources checks that every source that fits a pattern names its license. Reading them also tells the go command that
// results depend on them: what make reads it does not see, and would answer from its cache after a change.
func Sources(t *testing.T, patterns ...string) {
	t.Helper()
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.SplitN(string(text), "\n", 3)
			if !strings.Contains(strings.Join(lines[:min(2, len(lines))], "\n"), "SPDX-License-Identifier: Apache-2.0") {
				t.Errorf("%s: no SPDX-License-Identifier at the top", name)
			}
		}
	}
}
