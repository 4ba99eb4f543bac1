package doctor

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestCandidates follows openPluginLib of NCCL 2.28.9 and 2.30.7.
func TestCandidates(t *testing.T) {
	for value, want := range map[string][]string{
		"":                            {"libnccl-tuner.so"},
		"dynamiccl":                   {"dynamiccl", "libnccl-tuner-dynamiccl.so"},
		"libnccl-tuner-dynamiccl.so":  {"libnccl-tuner-dynamiccl.so"},
		"libx":                        {"libx", "libnccl-tuner-libx.so"},
		"x.so":                        {"x.so", "libnccl-tuner-x.so.so"},
		"./x":                         {"./x"},
		"/opt/libnccl-tuner-other.so": {"/opt/libnccl-tuner-other.so"},
	} {
		if got := halves[0].candidates(value); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", value, got, want)
		}
	}
	for value, want := range map[string]bool{"": false, "STATIC_PLUGIN": true, "static": true, "s": true, "dynamiccl": false, "STATIC_PLUGIN_X": false} {
		if static(value) != want {
			t.Errorf("static(%q) is %v", value, !want)
		}
	}
}

// cacheFile is a cache of ldconfig with these libraries, in glibc's new format.
func cacheFile(libraries [][2]string) []byte {
	strs := []byte{}
	head := make([]byte, cacheHeader+len(libraries)*cacheEntry)
	copy(head, cacheMagic)
	binary.LittleEndian.PutUint32(head[20:], uint32(len(libraries)))
	for i, l := range libraries {
		e := head[cacheHeader+i*cacheEntry:]
		for j, s := range l {
			binary.LittleEndian.PutUint32(e[4+4*j:], uint32(len(head)+len(strs)))
			strs = append(append(strs, s...), 0)
		}
	}
	return append(head, strs...)
}

func TestLookupCache(t *testing.T) {
	data := cacheFile([][2]string{{"libc.so.6", "/lib/libc.so.6"}, {"libx.so", "/opt/a/libx.so"}, {"libx.so", "/opt/b/libx.so"}, {"liby.so", "relative/liby.so"}})
	for _, prefix := range []string{"", "ld.so-1.7.0\x00\x00\x00\x00\x00"} { // an old cache may stand before the new one
		cache := append([]byte(prefix), data...)
		if got := lookupCache(cache, "libx.so"); !slices.Equal(got, []string{"/opt/a/libx.so", "/opt/b/libx.so"}) {
			t.Errorf("%q", got)
		}
		if got := lookupCache(cache, "liby.so"); got != nil {
			t.Errorf("a relative path: %q", got)
		}
		if got := lookupCache(cache, "libz.so"); got != nil {
			t.Errorf("unknown: %q", got)
		}
	}
	// What ldconfig wrote on this host must be understood as well, where there is one.
	if cache, err := os.ReadFile("/etc/ld.so.cache"); err == nil && len(lookupCache(cache, "libc.so.6")) == 0 {
		t.Error("libc is not in this host's own cache")
	}
}

func TestSearchOrder(t *testing.T) {
	p := newPatient(t)
	const name = "libnccl-tuner-dynamiccl.so"
	built := filepath.Join(p.lib, name)
	place := func(dir string) string {
		path := filepath.Join(p.host.Root, dir, name)
		data, err := os.ReadFile(built)
		if err != nil {
			t.Fatal(err)
		}
		p.write(path, string(data))
		return path
	}
	usr := place("usr/lib")
	delete(p.env, "LD_LIBRARY_PATH")
	if got := find(p.host, name); got != usr {
		t.Errorf("default directories: %q", got)
	}
	opt := place("opt/x")
	p.write(filepath.Join(p.host.Root, "etc/ld.so.cache"), string(cacheFile([][2]string{{name, "/opt/x/" + name}})))
	if got := find(p.host, name); got != opt {
		t.Errorf("cache: %q", got)
	}
	// A library for another processor is passed over by the loader's search.
	other := filepath.Join(p.root, "other")
	data, err := os.ReadFile(built)
	if err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint16(data[18:], 8) // e_machine: MIPS
	p.write(filepath.Join(other, name), string(data))
	p.env["LD_LIBRARY_PATH"] = other + ":" + p.lib
	if got := find(p.host, name); got != built {
		t.Errorf("LD_LIBRARY_PATH: %q", got)
	}
	if got := find(p.host, filepath.Join(other, name)); got == "" {
		t.Error("a path is not searched for")
	}
	p.env["NCCL_TUNER_PLUGIN"] = filepath.Join(other, name)
	p.wants("tuner", Fail, "another processor")
}

func TestConfFiles(t *testing.T) {
	p := newPatient(t)
	delete(p.env, "NCCL_TUNER_PLUGIN")
	system := filepath.Join(p.host.Root, "etc/nccl.conf")
	own := filepath.Join(p.root, ".nccl.conf")
	named := filepath.Join(p.root, "named.conf")
	p.write(system, "NCCL_TUNER_PLUGIN=system\nNCCL_ALGO=Tree\n")
	p.write(named, "NCCL_TUNER_PLUGIN=named\n")
	if got := environment(p.host)["NCCL_TUNER_PLUGIN"]; got != (setting{"system", system}) {
		t.Errorf("%+v", got)
	}
	p.write(own, "#NCCL_TUNER_PLUGIN=commented\nNCCL_TUNER_PLUGIN=own\nNCCL_DEBUG=INFO\nnonsense\n")
	if got := environment(p.host); got["NCCL_TUNER_PLUGIN"] != (setting{"own", own}) || got["NCCL_ALGO"].value != "Tree" || len(got) != 3 {
		t.Errorf("%+v", got)
	}
	p.env["NCCL_CONF_FILE"] = named
	if got := environment(p.host)["NCCL_TUNER_PLUGIN"]; got != (setting{"named", named}) {
		t.Errorf("%+v", got)
	}
	p.env["NCCL_TUNER_PLUGIN"] = "shell"
	if got := environment(p.host)["NCCL_TUNER_PLUGIN"]; got != (setting{"shell", "environment"}) {
		t.Errorf("%+v", got)
	}
}

// A pipe in the place of NCCL's file is NCCL's to read: who waits for it here starts no program.
func TestConfFileThatIsAPipe(t *testing.T) {
	p := newPatient(t)
	pipe := filepath.Join(p.root, "conf")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	p.env["NCCL_CONF_FILE"] = pipe
	read := make(chan map[string]setting, 1)
	go func() { read <- environment(p.host) }()
	select {
	case <-read:
	case <-time.After(10 * time.Second):
		t.Error("a pipe that nobody writes into is waited for")
		if f, err := os.OpenFile(pipe, os.O_RDWR, 0); err == nil { // lets it go on
			f.Close()
		}
	}
}

func TestProcesses(t *testing.T) {
	p := newPatient(t)
	const line = "7f0000000000-7f0000001000 r-xp 00000000 "
	maps := func(pid, text string) { p.write(filepath.Join(p.host.Root, "proc", pid, "maps"), text) }
	maps("11", line+"08:01 5    /a/libnccl-tuner-dynamiccl.so\n"+line+"08:01 5    /a/libnccl-profiler-dynamiccl.so\n"+line+"08:01 9 /a/libnccl.so.2\n\ngarbage\n"+line+"00:00 0\n")
	maps("12", line+"08:01 5    /a/libnccl-tuner-dynamiccl.so\n"+line+"08:01 6    /b/libnccl-profiler-dynamiccl.so (deleted)\n")
	maps("13", line+"08:01 5    /a/libnccl.so.2\n"+line+"08:02 5    /b/libnccl.so.2.30.7\n")
	var r Report
	checkProcesses(&r, p.host, []uint32{11, 12, 13, 14})
	want := []string{Fail, Warn, Warn, OK}
	var got []string
	for _, f := range r.Findings {
		got = append(got, f.Level)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s", text(r))
	}
}

func FuzzLookupCache(f *testing.F) {
	f.Add(cacheFile([][2]string{{"libx.so", "/opt/libx.so"}}))
	f.Add([]byte(cacheMagic))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, path := range lookupCache(data, "libx.so") {
			if path[0] != '/' {
				t.Errorf("%q", path)
			}
		}
	})
}

func FuzzInspect(f *testing.F) {
	exe, err := os.Executable()
	if err != nil {
		f.Fatal(err)
	}
	data, err := os.ReadFile(exe)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data[:4096])
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "x.so")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if lib, err := inspect(path); err == nil && lib.newest(halves[0].symbols) != "" && !lib.symbols[lib.newest(halves[0].symbols)] {
			t.Error("a symbol that is not there")
		}
	})
}
