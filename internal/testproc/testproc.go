// Package testproc looks after the processes that a test starts. Tests alone import it.
package testproc

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// NoneLeft fails the test if processes that have the variable in their environment ("TMPDIR=/a/folder/of/the/test") live on after so long.
func NoneLeft(t testing.TB, variable string, within time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		left := With(t, variable)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("processes left: %v", left)
		}
	}
}

// With are numbers and names of those that have it.
func With(t testing.TB, variable string) (found []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		environ, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err == nil && bytes.Contains(environ, []byte(variable+"\x00")) {
			name, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "comm")) // for the message
			found = append(found, e.Name()+" "+strings.TrimSpace(string(name)))
		}
	}
	return found
}
