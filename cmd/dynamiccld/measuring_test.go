package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Choices are of one version of NCCL: where python3 brings another library than the loader finds, that is said, with its name.
func TestMeasuringSaysWhichNCCL(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	library := func(folder string) string {
		path := filepath.Join(dir, folder, "lib", ncclLibrary)
		text, err := os.ReadFile(self) // a file that the loader would take
		if err == nil {
			err = os.MkdirAll(filepath.Dir(path), 0o755)
		}
		if err == nil {
			err = os.WriteFile(path, text[:4096], 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	loaders, pythons := library("system"), library("python")
	for _, c := range []struct{ name, python, nccl, says string }{
		{"two libraries", "python", "", "loader's, " + loaders + "; what programs load that python3 brings along: --nccl-lib " + pythons},
		{"the same", "system", "", ""},
		{"none of python's", "nowhere", "", ""},
		{"named", "python", pythons, ""},
	} {
		bin := filepath.Join(dir, c.name)
		if err := os.Mkdir(bin, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(bin, "python3"), []byte("#!/bin/sh\necho "+filepath.Join(dir, c.python)+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", bin)
		var said bytes.Buffer
		a := &app{stderr: &said, getenv: func(name string) string {
			return map[string]string{"LD_LIBRARY_PATH": filepath.Dir(loaders)}[name]
		}}
		m, ranks := measuring{worker: self, nccl: c.nccl}, 2
		if err := m.find(t.Context(), a, &ranks); err != nil || !strings.Contains(said.String(), c.says) || (c.says == "") != (said.Len() == 0) {
			t.Errorf("%s: %v, said %q", c.name, err, &said)
		}
	}
}
