package workertest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// build is where TestMain put worker, stand-ins and plugin; an own folder, so that tests never run files that somebody
// else is building.
var build string

func TestMain(m *testing.M) {
	code, err := buildAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func buildAndRun(m *testing.M) (code int, err error) {
	if build, err = os.MkdirTemp("", "dynamiccl-worker-"); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(build)) }()
	for _, dir := range []string{"../worker", "../fakegpu", "../plugin"} {
		object := filepath.Join(build, "obj", filepath.Base(dir))
		cmd := exec.Command("make", "-s", "-j2", "-C", dir, "BIN="+build, "LIB="+build, "BUILD="+object, "all")
		if out, err := cmd.CombinedOutput(); err != nil {
			return 1, fmt.Errorf("make -C %s: %w\n%s", dir, err, out)
		}
	}
	if code = m.Run(); code == 0 {
		err = goleak.Find()
	}
	return code, err
}
