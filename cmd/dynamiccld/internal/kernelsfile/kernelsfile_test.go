package kernelsfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dynamiccl/cmd/dynamiccld/internal/control"
)

// Ranks take what begins as a fatbin and is not too large, whatever comes then; all else is said with its name and a remedy, whether it was
// named or lies beside the library.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, size int64) string {
		path := filepath.Join(dir, name)
		err := os.WriteFile(path, []byte(text), 0o600)
		if err == nil {
			err = os.Truncate(path, size)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct{ path, why string }{
		{write("magic", string(magic), 4), ""},
		{write("largest", string(magic), most), ""},
		{write("large", string(magic), most+1), "is no fatbin of kernels (it has 67108865 bytes, and such a file 4 to 67108864)"},
		{write("short", string(magic), 3), "is no fatbin of kernels (it has 3 bytes"},
		{write("empty", "", 0), "is no fatbin of kernels (it has 0 bytes"},
		{write("library", "\x7fELF\x02\x01", 6), "is no fatbin of kernels (it begins with the bytes 7f 45 4c 46, and such a file with 50 ed 55 ba)"},
		{dir, "is no regular file"},
	} {
		f, there := Find(func(string) string { return "" }, Variable, c.path)
		if want := strings.TrimSuffix(c.path+" "+c.why, " "); !there || f.Path != c.path || (c.why == "") != (f.Refused == "") || c.why != "" && !strings.HasPrefix(f.Refused, want) {
			t.Errorf("beside: %v %+v, want %q", there, f, c.why)
		}
		if (f.Remedy == "") != (c.why == "") || strings.Contains(f.Remedy, "unset") {
			t.Errorf("beside: remedy of %+v", f)
		}
		named := func(name string) string { return map[string]string{"DYNAMICCL_X": c.path}[name] }
		f, there = Find(named, "DYNAMICCL_X", "/nowhere/beside")
		if want := fmt.Sprintf("DYNAMICCL_X names %s, which %s", c.path, c.why); !there || f.Path != c.path || (c.why == "") != (f.Refused == "") || c.why != "" && !strings.HasPrefix(f.Refused, want) {
			t.Errorf("named: %v %+v, want %q", there, f, c.why)
		}
		if c.why != "" && !strings.Contains(f.Remedy, "unset DYNAMICCL_X") {
			t.Errorf("named: remedy of %+v", f)
		}
	}
}

// One that is named has to be there; without it kernels were not built, and nothing is wrong.
func TestMissing(t *testing.T) {
	if f, there := Find(func(string) string { return "" }, Variable, "/nowhere/x"); there || f != (File{Path: "/nowhere/x"}) {
		t.Errorf("beside: %v %+v", there, f)
	}
	f, there := Find(func(string) string { return "/nowhere/y" }, Variable, "/nowhere/x")
	if !there || f.Path != "/nowhere/y" || f.Refused != "DYNAMICCL_KERNELS names /nowhere/y, which cannot be read (no such file or directory)" {
		t.Errorf("named: %v %+v", there, f)
	}
}

// What is checked is what ranks check.
func TestAsRanksDo(t *testing.T) {
	source, err := os.ReadFile("../../../../kernels/host/module.c")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{fmt.Sprintf("#define FATBIN_NAME %q\n", Name), fmt.Sprintf("#define FATBIN_MAGIC 0x%X%X%X%Xu\n", magic[3], magic[2], magic[1], magic[0]),
		fmt.Sprintf("#define FATBIN_MOST (%dl << 20)\n", most>>20), "bytes >= (long)sizeof magic && bytes <= FATBIN_MOST", fmt.Sprintf("%q", Variable)} {
		if !strings.Contains(string(source), want) {
			t.Errorf("kernels/host/module.c has no %q", want)
		}
	}
}

// Versions and files that are named are those of the kernels' source.
func TestGINVersions(t *testing.T) {
	header, err := os.ReadFile("../../../../kernels/host/nccl_gin.h")
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile("../../../../kernels/host/gin_module.c")
	if err != nil {
		t.Fatal(err)
	}
	want := "#define DYN_GIN_NCCL_VERSIONS(X)"
	for _, g := range OverGIN {
		code, err := control.ParseNCCLVersion(g.NCCL)
		if err != nil || !strings.Contains(string(module), `"`+g.Name+`"`) {
			t.Errorf("%+v: %v, or it is no file of gin_module.c's", g, err)
		}
		want += fmt.Sprintf(" X(%d)", code)
	}
	if !strings.Contains(string(header), want+"\n") {
		t.Errorf("no %q in it", want)
	}
}
