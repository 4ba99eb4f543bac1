package doctor

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/kernelsfile"
	"dynamiccl/nccltuner"
	"dynamiccl/tuner/store"
)

// patient is a host made of files; everything is well until a test spoils it.
type patient struct {
	t    *testing.T
	host Host
	env  map[string]string
	root string
	lib  string // directory of the plugin
}

func newPatient(t *testing.T) *patient {
	t.Helper()
	root, err := os.MkdirTemp("", "dyn") // short, for the socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	p := &patient{t: t, root: root, lib: filepath.Join(root, "lib")}
	dir := filepath.Join(root, "run")
	p.env = map[string]string{"NCCL_TUNER_PLUGIN": "dynamiccl", "NCCL_PROFILER_PLUGIN": "dynamiccl", "LD_LIBRARY_PATH": p.lib,
		"DYNAMICCL_DIR": dir, "HOME": root}
	p.host = Host{Getenv: func(n string) string { return p.env[n] }, EUID: os.Geteuid(), Root: filepath.Join(root, "sys"), Dir: dir,
		StorePath: filepath.Join(root, "store.db"), Version: "v1.2.3", ABI: nccltuner.ABIVersion, Client: control.NewClient(dir)}
	p.mkdir(dir)
	p.mkdir(p.lib)
	p.compile("libnccl-tuner-dynamiccl.so", plugin(nccltuner.ABIVersion))
	p.link("libnccl-tuner-dynamiccl.so", "libnccl-profiler-dynamiccl.so")
	p.compile("libdynamiccl.so", "int dynamiccl_preload;")
	p.env["LD_PRELOAD"] = "/u/first.so " + filepath.Join(p.lib, "libdynamiccl.so")
	return p
}

// plugin is C code of a library like ours.
func plugin(abi int) string {
	return fmt.Sprintf("int ncclTunerPlugin_v5, ncclTunerPlugin_v6, ncclProfiler_v4; const char *const dir = \"DYNAMICCL_DIR\", *const abi = \"dynamiccl-abi=%d\";", abi)
}

func (p *patient) mkdir(path string) {
	p.t.Helper()
	if err := os.MkdirAll(path, 0o700); err != nil {
		p.t.Fatal(err)
	}
}

func (p *patient) write(path, text string) {
	p.t.Helper()
	p.mkdir(filepath.Dir(path))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func (p *patient) compile(name, code string) {
	p.t.Helper()
	source := filepath.Join(p.root, "x.c")
	p.write(source, code)
	if out, err := exec.Command("gcc", "-shared", "-nostdlib", "-fPIC", "-o", filepath.Join(p.lib, name), source).CombinedOutput(); err != nil {
		p.t.Fatalf("gcc: %v\n%s", err, out)
	}
}

func (p *patient) link(target, name string) {
	p.t.Helper()
	path := filepath.Join(p.lib, name)
	os.Remove(path)
	if err := os.Symlink(target, path); err != nil {
		p.t.Fatal(err)
	}
}

func (p *patient) serve(b control.Backend) {
	p.t.Helper()
	l, err := control.Listen(p.host.Dir)
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	s := control.NewServer(b, slog.New(slog.DiscardHandler), time.Now)
	go func() { done <- s.Serve(ctx, l) }()
	p.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			p.t.Error(err)
		}
	})
}

func (p *patient) lock() {
	p.t.Helper()
	dir, err := nccltuner.OpenDir(p.host.Dir)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := dir.Lock(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { dir.Close() })
}

func (p *patient) run() Report { return Run(context.Background(), p.host) }

// wants checks that some finding of the check has the level and says all words in text or remedy.
func (p *patient) wants(check, level string, words ...string) {
	p.t.Helper()
	r := p.run()
search:
	for _, f := range r.Findings {
		if f.Check != check || f.Level != level {
			continue
		}
		for _, w := range words {
			if !strings.Contains(f.Text+" -> "+f.Remedy, w) {
				continue search
			}
		}
		return
	}
	p.t.Errorf("no %s of %s with %q in\n%s", level, check, words, text(r))
}

func text(r Report) string {
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "  %s %s: %s -> %s\n", f.Level, f.Check, f.Text, f.Remedy)
	}
	return b.String()
}

func (p *patient) nccl(version string) {
	p.compile("libnccl.so.2", fmt.Sprintf("const char said[] = \"NCCL version %s+cuda13.0\";", version))
}

// fatbin is all that doctor reads of a file of kernels.
const fatbin = "\x50\xed\x55\xba"

func (p *patient) gin() { p.write(filepath.Join(p.lib, kernelsfile.OverGIN[0].Name), fatbin) }

func (p *patient) carrier() {
	p.compile(carrierFile, "int ncclNetPlugin_v11, ncclGinPlugin_v11, ncclGinPlugin_v14, ncclRmaPlugin_v14;")
	p.env["NCCL_NET_PLUGIN"], p.env["DYNAMICCL_GIN_NET"], p.env["DYNAMICCL_CARRIER"] = "dynamiccl-carrier", "dynamiccl-carrier", "1"
	p.env["CUDA_DEVICE_MAX_CONNECTIONS"] = "32"
}

// carrierFor has NCCL 2.30.5 and later take it, by these variables.
func (p *patient) carrierFor(names ...string) {
	p.carrier()
	delete(p.env, "NCCL_NET_PLUGIN")
	delete(p.env, "DYNAMICCL_GIN_NET")
	for _, name := range names {
		p.env[name] = carrierFile
	}
}

func (p *patient) card() { p.write(filepath.Join(p.lib, carrierKernelFile), "x") }

func (p *patient) replaceTuner(code string) {
	p.t.Helper()
	p.compile("libnccl-tuner-dynamiccl.so", code)
}

func (p *patient) move(dir string) {
	p.host.Dir, p.env["DYNAMICCL_DIR"], p.host.Client = dir, dir, control.NewClient(dir)
}

func (p *patient) becomes(what func() error) {
	p.t.Helper()
	if err := os.RemoveAll(p.host.Dir); err != nil {
		p.t.Fatal(err)
	}
	if err := what(); err != nil {
		p.t.Fatal(err)
	}
}

// record leaves a file of a communicator with a header as a rank writes it.
func (p *patient) record(version uint32, size int) {
	p.t.Helper()
	data := make([]byte, size)
	binary.LittleEndian.PutUint64(data, nccltuner.RecordMagic)
	binary.LittleEndian.PutUint32(data[8:], version)
	binary.LittleEndian.PutUint64(data[16:], uint64(size))
	p.write(filepath.Join(p.host.Dir, "comm-00000000000000bb.shm"), string(data))
}

func (p *patient) makeStore() {
	p.t.Helper()
	s, err := store.Open(p.host.StorePath, store.Options{})
	if err != nil {
		p.t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *patient) listing() string {
	var b strings.Builder
	err := filepath.Walk(p.root, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		_, e := fmt.Fprintln(&b, path, info.Mode(), info.ModTime().UnixNano(), info.Size())
		return e
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return b.String()
}
