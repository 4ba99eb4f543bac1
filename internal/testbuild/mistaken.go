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
	share(t, library, preload, folder, Mistaken(t, dir, folder, file, is, mistake), slices.Delete(objects, i, i+1))
	return library
}

// MistakenPlugin links the plugin, whose Makefile is in plugin and made objects, into dir: with a mistake in a header that tuner.c alone has.
func MistakenPlugin(t *testing.T, dir, plugin, objects, header, is, mistake string) string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(objects, "*.o"))
	i := slices.Index(all, filepath.Join(objects, "tuner.o"))
	if err != nil || i < 0 {
		t.Fatalf("no objects of the plugin in %s: %v", objects, err)
	}
	include := `#include "` + header + `"`
	Mistaken(t, dir, plugin, header, is, mistake)
	library := filepath.Join(dir, "libnccl-tuner-dynamiccl.so")
	share(t, library, plugin, plugin, Mistaken(t, dir, plugin, "tuner.c", include, include), slices.Delete(all, i, i+1)) // a copy finds what is beside it
	return library
}

// share links a shared library, whose Makefile is in made, of objects and of a source of folder.
func share(t *testing.T, library, made, folder, source string, objects []string) {
	t.Helper()
	args := []string{"-std=gnu11", "-w", "-D_GNU_SOURCE", "-fPIC", "-fvisibility=hidden", "-ftls-model=initial-exec", "-include", filepath.Join(made, "../glibc.h"),
		"-iquote", folder, "-shared", "-Wl,-Bsymbolic", "-o", library, source}
	if out, err := exec.CommandContext(t.Context(), cmp.Or(os.Getenv("CC"), "gcc"), slices.Concat(args, objects, []string{"-pthread", "-ldl"})...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
