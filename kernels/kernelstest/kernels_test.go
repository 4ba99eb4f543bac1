// Package kernelstest runs the kernels' tests that need no GPU.
package kernelstest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Every kernel on threads of a CPU; then with planted mistakes, each of which must be found.
func TestCollectives(t *testing.T) {
	build := t.TempDir()
	if said, err := exec.Command("make", "-s", "-j2", "-C", "..", "BUILD="+build, "tests").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	calls := "4000"
	if os.Getenv("DYN_LONG") != "" {
		calls = "400000"
	}
	for mistake := range 6 {
		name := "collectives_test"
		if mistake > 0 {
			name += fmt.Sprintf("-m%d", mistake)
		}
		t.Run(name, func(t *testing.T) {
			said, err := exec.Command(filepath.Join(build, name), calls).CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, said)
			}
			t.Logf("%s", said)
		})
	}
}
