package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A name that JSON cannot hold is not given as another one.
func TestEnvOfOddNames(t *testing.T) {
	w := newWorld(t)
	const tuner = "libnccl-tuner-dynamiccl.so"
	if err := errors.Join(os.WriteFile(filepath.Join(w.root, tuner), nil, 0o600), os.Symlink(tuner, filepath.Join(w.root, "libnccl-profiler-dynamiccl.so"))); err != nil {
		t.Fatal(err)
	}
	out, code := w.run("env --json --plugin-dir $ROOT", "", "DYNAMICCL_DIR=/nowhere/\xff")
	if code != 1 || !strings.Contains(out, `DYNAMICCL_DIR="/nowhere/\xff" is no UTF-8`) {
		t.Errorf("%d\n%s", code, out)
	}
}
