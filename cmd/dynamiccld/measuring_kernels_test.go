package main

import (
	"bytes"
	"os"
	"path/filepath"
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
	for _, c := range []struct {
		name    string
		environ []string
		says    string
	}{
		{"not built", []string{"LD_PRELOAD=" + alone}, ""},
		{"named", []string{"LD_PRELOAD=/u/first.so:" + alone, "DYNAMICCL_KERNELS=" + bad}, "DYNAMICCL_KERNELS names " + bad + ", which is no fatbin of kernels"},
		{"named and not there", []string{"LD_PRELOAD=" + alone, "DYNAMICCL_KERNELS=/nope"}, "DYNAMICCL_KERNELS names /nope, which cannot be read"},
		{"beside", []string{"LD_PRELOAD=" + beside}, bad + " is no fatbin of kernels"},
		{"a good one for that beside", []string{"LD_PRELOAD=" + beside, "DYNAMICCL_KERNELS=" + good}, ""},
		{"switched off", []string{"LD_PRELOAD=" + beside, "DYNAMICCL_NO_KERNELS=1"}, ""},
		{"switched on again by an arm", []string{"LD_PRELOAD=" + beside, "DYNAMICCL_NO_KERNELS=1", "DYNAMICCL_NO_KERNELS=0"}, bad},
		{"no library that would read it", []string{"LD_PRELOAD=/u/first.so", "DYNAMICCL_KERNELS=/nope"}, ""},
	} {
		if got := new(app).refusedKernels(c.environ); !strings.HasPrefix(got, c.says) || (c.says == "") != (got == "") {
			t.Errorf("%s: it says %q, want %q", c.name, got, c.says)
		}
	}
}

func TestRefusedKernelsAreSaidOnce(t *testing.T) {
	var said bytes.Buffer
	var m measuring
	m.sayRefused(&app{stderr: &said}, "", "x", "x", "")
	if said.String() != "dynamiccld: x\n" || m.refused != "x" {
		t.Errorf("said %q, kept %q", &said, m.refused)
	}
}
