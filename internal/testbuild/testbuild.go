// Package testbuild builds C programs and libraries for the tests of a package, in a folder of its own, so that tests never
// run files that somebody else is building.
package testbuild

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// Main is a TestMain: it makes the directories, each with a Makefile that takes BIN, LIB and BUILD, into *build, runs the
// tests, looks for goroutines that are left, and removes what was built. "DIRECTORY TARGET" makes another target than all.
func Main(m *testing.M, build *string, what ...string) {
	code, err := run(m, build, what)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// Objects is the BUILD of a directory.
func Objects(build, dir string) string { return filepath.Join(build, "obj", filepath.Base(dir)) }

func run(m *testing.M, build *string, what []string) (code int, err error) {
	if *build, err = os.MkdirTemp("", "dynamiccl-test-"); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(*build)) }()
	for _, w := range what {
		dir, target, _ := strings.Cut(w, " ")
		cmd := exec.Command("make", "-s", "-j2", "-C", dir, "BIN="+*build, "LIB="+*build, "BUILD="+Objects(*build, dir), cmp.Or(target, "all"))
		if out, err := cmd.CombinedOutput(); err != nil {
			return 1, fmt.Errorf("make -C %s: %w\n%s", dir, err, out)
		}
	}
	if code = m.Run(); code == 0 {
		err = goleak.Find()
	}
	return code, err
}
