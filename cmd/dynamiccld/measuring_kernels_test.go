package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Ranks that refuse the file of our kernels say so in logs that are gone; it is said beforehand where they would have had them.
func TestRefusedKernels(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	alone, beside := write("alone/libdynamiccl.so", ""), write("beside/libdynamiccl.so", "")
	bad, good := write("beside/dynamiccl-kernels.fatbin", "garbage"), write("good", "\x50\xed\x55\xba")
	gin, badGIN := write("gin/libdynamiccl.so", ""), write("gin/dynamiccl-gin-2.32.3.fatbin", "garbage")
	for _, c := range []struct {
		name    string
		environ []string
		says    string
		several string // what is said where there are several nodes
	}{
		{"not built", []string{"LD_PRELOAD=" + alone}, "", ""},
		{"named", []string{"LD_PRELOAD=/u/first.so:" + alone, "DYNAMICCL_KERNELS=" + bad}, "DYNAMICCL_KERNELS names " + bad + ", which is no fatbin of kernels", ""},
		{"named and not there", []string{"LD_PRELOAD=" + alone, "DYNAMICCL_KERNELS=/nope"}, "DYNAMICCL_KERNELS names /nope, which cannot be read", ""},
		{"beside", []string{"LD_PRELOAD=" + beside}, bad + " is no fatbin of kernels", ""},
		{"a good one for that beside", []string{"LD_PRELOAD=" + beside, "DYNAMICCL_KERNELS=" + good}, "", ""},
		{"switched off", []string{"LD_PRELOAD=" + beside, "DYNAMICCL_NO_KERNELS=1"}, "", ""},
		{"switched on again by an arm", []string{"LD_PRELOAD=" + beside, "DYNAMICCL_NO_KERNELS=1", "DYNAMICCL_NO_KERNELS=0"}, bad, ""},
		{"no library that would read it", []string{"LD_PRELOAD=/u/first.so", "DYNAMICCL_KERNELS=/nope"}, "", ""},
		{"over GIN", []string{"LD_PRELOAD=" + gin}, "", badGIN + " is no fatbin of kernels (it begins with the bytes 67 61 72 62, and such a file with 50 ed 55 ba): ranks with NCCL 2.32.3 have none of our kernels over GIN"},
		{"over GIN, named", []string{"LD_PRELOAD=" + gin, "DYNAMICCL_GIN_KERNELS=/nope"}, "", "DYNAMICCL_GIN_KERNELS names /nope, which cannot be read (no such file or directory): ranks with NCCL 2.28.9 have none"},
		{"over GIN, switched off", []string{"LD_PRELOAD=" + gin, "DYNAMICCL_GIN=0"}, "", ""},
	} {
		for _, several := range []bool{false, true} {
			want := c.says
			if several {
				want += c.several
			}
			if got := strings.Join(new(app).refusedKernels(c.environ, several), "\n"); !strings.HasPrefix(got, want) || (want == "") != (got == "") {
				t.Errorf("%s, several nodes: %v: it says %q, want %q", c.name, several, got, want)
			}
		}
	}
}

func TestRefusedKernelsAreSaidOnce(t *testing.T) {
	var said bytes.Buffer
	var m measuring
	m.sayRefused(&app{stderr: &said}, []string{"x", "y", "x"})
	if said.String() != "dynamiccld: x\ndynamiccld: y\n" || !slices.Equal(m.refused, []string{"x", "y"}) {
		t.Errorf("said %q, kept %q", &said, m.refused)
	}
}
