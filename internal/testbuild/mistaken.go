package testbuild

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Mistaken writes a file of folder into dir, with a mistake for what is there once.
func Mistaken(t *testing.T, dir, folder, file, is, mistake string) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(folder, file))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), is); n != 1 {
		t.Fatalf("%q is there %d times", is, n)
	}
	path := filepath.Join(dir, file)
	if err := os.WriteFile(path, []byte(strings.Replace(string(source), is, mistake, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// MistakenPreload links the preload library, whose Makefile is in preload, into dir: with a mistake in a file of folder, which is its own or
// that of sources it takes along. That file is not optimised: it would take four times as long.
func MistakenPreload(t *testing.T, build, dir, preload, folder, file, is, mistake string) string {
	t.Helper()
	var objects []string
	for _, part := range []string{"", "host", "hosts"} { // its own, and those of folders of these names
		some, err := filepath.Glob(filepath.Join(Objects(build, preload), part, "*.o"))
		if err != nil || len(some) == 0 {
			t.Fatalf("no objects of %q: %v", part, err)
		}
		objects = append(objects, some...)
	}
	part := filepath.Base(folder)
	if folder == preload {
		part = ""
	}
	own := filepath.Join(Objects(build, preload), part, strings.TrimSuffix(file, ".c")+".o")
	i := slices.Index(objects, own)
	if i < 0 {
		t.Fatalf("%s is not of the library", own)
	}
	library := filepath.Join(dir, "libdynamiccl.so")
	args := []string{"-std=gnu11", "-w", "-D_GNU_SOURCE", "-fPIC", "-fvisibility=hidden", "-ftls-model=initial-exec", "-include", filepath.Join(preload, "../glibc.h"),
		"-iquote", folder, "-shared", "-Wl,-Bsymbolic", "-o", library, Mistaken(t, dir, folder, file, is, mistake)}
	if out, err := exec.CommandContext(t.Context(), cmp.Or(os.Getenv("CC"), "gcc"), slices.Concat(args, slices.Delete(objects, i, i+1), []string{"-pthread", "-ldl"})...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return library
}
