package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/fakebackend"
	"dynamiccl/nccltuner"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAllIsWell(t *testing.T) {
	p := newPatient(t)
	p.serve(fakebackend.Empty())
	r := p.run()
	if r.Failures+r.Warnings != 0 || r.OK != len(r.Findings) {
		t.Errorf("%s", text(r))
	}
	for _, check := range []string{"settings", "tuner", "profiler", "halves", "preload", "nccl", "kernels", "gin", "forced", "directory", "space", "daemon", "files", "store"} {
		p.wants(check, OK)
	}
	p.wants("tuner", OK, filepath.Join(p.lib, "libnccl-tuner-dynamiccl.so"), "ncclTunerPlugin_v6")
	p.wants("profiler", OK, "ncclProfiler_v4")
}

// TestEveryTroubleHasARemedy spoils one thing at a time.
func TestEveryTroubleHasARemedy(t *testing.T) {
	for _, c := range []struct {
		name         string
		spoil        func(*patient)
		check, level string
		words        []string
	}{
		{"mistyped variable", func(p *patient) { p.host.ConfigWarnings = []string{"DYNAMICCL_NO_KERNEL is not known"} }, "settings", Warn,
			[]string{"DYNAMICCL_NO_KERNEL is not known", "unset it"}},
		{"settings", func(p *patient) { p.host.ConfigErr = fmt.Errorf("tick: bad") }, "settings", Fail, []string{"tick: bad"}},
		{"long directory", func(p *patient) { p.host.Dir = filepath.Join(p.host.Dir, strings.Repeat("x", 120)) }, "directory", Fail, []string{"at most 107", "DYNAMICCL_DIR"}},
		{"tuner not set", func(p *patient) { delete(p.env, "NCCL_TUNER_PLUGIN") }, "tuner", Fail, []string{"not set", "libnccl-tuner.so", "unset NCCL_PROFILER_PLUGIN, then start", "dynamiccld run", "eval \"$(dynamiccld env)\""}},
		{"tuner none", func(p *patient) { p.env["NCCL_TUNER_PLUGIN"] = "NONE" }, "tuner", Fail, []string{"loads no tuner", "unset NCCL_TUNER_PLUGIN NCCL_PROFILER_PLUGIN, then start"}},
		{"tuner of a file", func(p *patient) {
			delete(p.env, "NCCL_TUNER_PLUGIN")
			p.write(filepath.Join(p.root, ".nccl.conf"), "NCCL_TUNER_PLUGIN=none\n")
		}, "tuner", Fail, []string{"unset NCCL_PROFILER_PLUGIN, then remove NCCL_TUNER_PLUGIN from ", ".nccl.conf, then start"}},
		{"tuner static", func(p *patient) { p.env["NCCL_TUNER_PLUGIN"] = "static_plugin" }, "tuner", Fail, []string{"inside of the program"}},
		{"library missing", func(p *patient) { p.env["LD_LIBRARY_PATH"] = "/nowhere" }, "tuner", Fail, []string{"dynamiccl, then libnccl-tuner-dynamiccl.so", "LD_LIBRARY_PATH=/nowhere"}},
		{"no library", func(p *patient) { p.replaceTuner("int x;") }, "tuner", Fail, []string{"exports no tuner"}},
		{"text file", func(p *patient) {
			os.Remove(filepath.Join(p.lib, "libnccl-tuner-dynamiccl.so"))
			p.write(filepath.Join(p.lib, "libnccl-tuner-dynamiccl.so"), "text")
		}, "tuner", Fail, []string{"cannot be read as a library", "make plugin"}},
		{"other plugin", func(p *patient) { p.replaceTuner("int ncclTunerPlugin_v5;") }, "tuner", Fail, []string{"another plugin"}},
		{"other layout", func(p *patient) { p.replaceTuner(plugin(99)) }, "tuner", Fail, []string{"layout 99", "one release"}},
		{"layout not known", func(p *patient) { p.replaceTuner("int ncclTunerPlugin_v5; const char *const d = \"DYNAMICCL_DIR\";") }, "tuner", Warn, []string{"layout is not known"}},
		{"copies", func(p *patient) {
			os.Remove(filepath.Join(p.lib, "libnccl-profiler-dynamiccl.so"))
			p.compile("libnccl-profiler-dynamiccl.so", plugin(nccltuner.ABIVersion))
		}, "halves", Fail, []string{"two copies", "symbolic link"}},
		{"no profiler", func(p *patient) { p.env["NCCL_PROFILER_PLUGIN"] = "none" }, "halves", Warn, []string{"nothing is explored", "DYNAMICCL_CHAIN_PROFILER"}},
		{"no tuner", func(p *patient) { p.env["NCCL_TUNER_PLUGIN"] = "none" }, "halves", Fail, []string{"nothing chosen"}},
		{"chained itself", func(p *patient) { p.env["DYNAMICCL_CHAIN_PROFILER"] = "dynamiccl" }, "chain", Fail, []string{"itself"}},
		{"chained nothing", func(p *patient) { p.env["DYNAMICCL_CHAIN_PROFILER"] = "/no/such.so" }, "chain", Fail, []string{"no such library"}},
		{"chained no profiler", func(p *patient) {
			p.compile("libother.so", "int x;")
			p.env["DYNAMICCL_CHAIN_PROFILER"] = "libother.so"
		}, "chain", Fail, []string{"no profiler"}},
		{"chained", func(p *patient) {
			p.compile("libother.so", "int ncclProfiler_v3;")
			p.env["DYNAMICCL_CHAIN_PROFILER"] = "libother.so"
		}, "chain", OK, []string{"libother.so"}},
		{"no preload", func(p *patient) { delete(p.env, "LD_PRELOAD") }, "preload", Warn, []string{"not in LD_PRELOAD", "dynamiccld run", "export LD_PRELOAD=", "lib/libdynamiccl.so"}},
		{"no preload anywhere", func(p *patient) {
			delete(p.env, "LD_PRELOAD")
			os.Remove(filepath.Join(p.lib, "libdynamiccl.so"))
		}, "preload", Warn, []string{"make plugin"}},
		{"preload gone", func(p *patient) { os.Remove(filepath.Join(p.lib, "libdynamiccl.so")) }, "preload", Fail, []string{"which is not there", "make plugin"}},
		{"preload by name", func(p *patient) { p.env["LD_PRELOAD"] = "libdynamiccl.so" }, "preload", OK, []string{"is preloaded"}},
		{"another preload of that name", func(p *patient) { p.compile("libdynamiccl.so", "int x;") }, "preload", Fail, []string{"another library"}},
		{"no kernels", func(p *patient) {}, "kernels", OK, []string{"not built", "make kernels"}},
		{"kernels", func(p *patient) { p.write(filepath.Join(p.lib, "dynamiccl-kernels.fatbin"), fatbin) }, "kernels", OK, []string{"may run our own", "lib/dynamiccl-kernels.fatbin"}},
		{"kernels elsewhere", func(p *patient) { p.env["DYNAMICCL_KERNELS"] = "/elsewhere" }, "kernels", Fail, []string{"/elsewhere", "unset DYNAMICCL_KERNELS"}},
		{"kernels of garbage", func(p *patient) { p.write(filepath.Join(p.lib, "dynamiccl-kernels.fatbin"), "garbage") }, "kernels", Fail,
			[]string{"lib/dynamiccl-kernels.fatbin is no fatbin of kernels (it begins with the bytes 67 61 72 62", "NCCL runs all calls -> build it anew with `make kernels`"}},
		{"kernels of an empty file", func(p *patient) { p.write(filepath.Join(p.lib, "dynamiccl-kernels.fatbin"), "") }, "kernels", Fail, []string{"lib/dynamiccl-kernels.fatbin is no fatbin", "0 bytes", "make kernels"}},
		{"kernels of garbage elsewhere", func(p *patient) { p.env["DYNAMICCL_KERNELS"] = filepath.Join(p.lib, "libdynamiccl.so") }, "kernels", Fail,
			[]string{"DYNAMICCL_KERNELS names ", "lib/libdynamiccl.so, which is no fatbin of kernels", "make kernels", "unset DYNAMICCL_KERNELS"}},
		{"kernels of garbage, unwanted", func(p *patient) {
			p.write(filepath.Join(p.lib, "dynamiccl-kernels.fatbin"), "garbage")
			p.env["DYNAMICCL_NO_KERNELS"] = "1"
		}, "kernels", OK, []string{"DYNAMICCL_NO_KERNELS is set"}},
		{"kernels unwanted", func(p *patient) { p.env["DYNAMICCL_NO_KERNELS"] = "1" }, "kernels", OK, []string{"DYNAMICCL_NO_KERNELS is set"}},
		{"no NCCL", func(p *patient) {}, "nccl", OK, []string{"no libnccl.so.2"}},
		{"NCCL", func(p *patient) { p.nccl("2.32.3") }, "nccl", OK, []string{"NCCL 2.32.3", "lib/libnccl.so.2"}},
		{"NCCL without a version", func(p *patient) { p.compile("libnccl.so.2", "int ncclAllReduce;") }, "nccl", OK, []string{"does not say its version"}},
		{"NCCL that is text", func(p *patient) { p.write(filepath.Join(p.lib, "libnccl.so.2"), "text") }, "nccl", Warn, []string{"cannot be read"}},
		{"no kernels over GIN", func(p *patient) {}, "gin", OK, []string{"not built", "make kernels"}},
		{"kernels over GIN", func(p *patient) { p.gin() }, "gin", OK, []string{"with NCCL 2.28.9 or 2.32.3", "lib/dynamiccl-gin.fatbin"}},
		{"kernels over GIN with their NCCL", func(p *patient) { p.gin(); p.nccl("2.28.9") }, "gin", OK, []string{"may run over GIN"}},
		{"kernels over GIN with the newer NCCL, and not for it", func(p *patient) { p.gin(); p.nccl("2.32.3") }, "gin", OK, []string{"not built", "make kernels"}},
		{"kernels over GIN for the newer NCCL", func(p *patient) {
			p.write(filepath.Join(p.lib, "dynamiccl-gin-2.32.3.fatbin"), fatbin)
			p.nccl("2.32.3")
		}, "gin", OK, []string{"with NCCL 2.32.3", "lib/dynamiccl-gin-2.32.3.fatbin"}},
		{"kernels over GIN for the newer NCCL alone", func(p *patient) { p.write(filepath.Join(p.lib, "dynamiccl-gin-2.32.3.fatbin"), fatbin) }, "gin", OK, []string{"lib/dynamiccl-gin-2.32.3.fatbin"}},
		{"kernels over GIN with another NCCL", func(p *patient) { p.gin(); p.nccl("2.30.7") }, "gin", OK, []string{"none with 2.30.7"}},
		{"kernels over GIN asked for with another NCCL", func(p *patient) { p.gin(); p.nccl("2.30.7"); p.env["DYNAMICCL_GIN"] = "1" }, "gin", Warn, []string{"not with 2.30.7"}},
		{"kernels over GIN asked for and not there", func(p *patient) { p.env["DYNAMICCL_GIN"] = "1" }, "gin", Warn, []string{"dynamiccl-gin.fatbin", "make kernels"}},
		{"kernels over GIN elsewhere", func(p *patient) { p.env["DYNAMICCL_GIN_KERNELS"] = "/elsewhere" }, "gin", Fail, []string{"/elsewhere", "unset DYNAMICCL_GIN_KERNELS"}},
		{"kernels over GIN of garbage", func(p *patient) {
			p.write(filepath.Join(p.lib, "dynamiccl-gin-2.32.3.fatbin"), "garbage")
			p.nccl("2.32.3")
		}, "gin", Fail,
			[]string{"lib/dynamiccl-gin-2.32.3.fatbin is no fatbin of kernels", "no kernels over GIN -> build it anew with `make kernels`"}},
		{"kernels over GIN of an empty file", func(p *patient) { p.write(filepath.Join(p.lib, "dynamiccl-gin.fatbin"), "") }, "gin", Fail, []string{"lib/dynamiccl-gin.fatbin is no fatbin", "0 bytes"}},
		{"kernels over GIN of garbage elsewhere", func(p *patient) { p.env["DYNAMICCL_GIN_KERNELS"] = filepath.Join(p.lib, "libdynamiccl.so") }, "gin", Fail,
			[]string{"DYNAMICCL_GIN_KERNELS names ", "lib/libdynamiccl.so, which is no fatbin", "unset DYNAMICCL_GIN_KERNELS"}},
		{"kernels over GIN unwanted", func(p *patient) { p.gin(); p.env["DYNAMICCL_GIN"] = "0" }, "gin", OK, []string{"DYNAMICCL_GIN=0"}},
		{"carrier", func(p *patient) { p.carrier() }, "carrier", Warn, []string{"type Proxy alone", "for development", "unset NCCL_NET_PLUGIN"}},
		{"carrier with its card", func(p *patient) { p.carrier(); p.card() }, "carrier", Warn, []string{"Proxy and GDAKI"}},
		{"carrier for RMA", func(p *patient) { p.carrierFor("NCCL_RMA_PLUGIN") }, "carrier", Warn, []string{"type Proxy, with NCCL 2.30.5", "unset NCCL_RMA_PLUGIN"}},
		{"carrier for GIN", func(p *patient) { p.carrierFor("NCCL_GIN_PLUGIN"); p.card() }, "carrier", Warn, []string{"type GDAKI, with NCCL 2.30.5", "unset NCCL_GIN_PLUGIN"}},
		{"carrier for GIN without its card", func(p *patient) { p.carrierFor("NCCL_GIN_PLUGIN") }, "carrier", Warn, []string{"no GIN of it", "dynamiccl-carrier.fatbin is not beside it"}},
		{"carrier for GIN and RMA", func(p *patient) { p.carrierFor("NCCL_GIN_PLUGIN", "NCCL_RMA_PLUGIN"); p.card() }, "carrier", Warn, []string{"Proxy and GDAKI, with NCCL 2.30.5", "unset NCCL_GIN_PLUGIN NCCL_RMA_PLUGIN"}},
		{"carrier for GIN and RMA without its card", func(p *patient) { p.carrierFor("NCCL_GIN_PLUGIN", "NCCL_RMA_PLUGIN") }, "carrier", Warn, []string{"type Proxy alone, with NCCL 2.30.5", "which GDAKI wants"}},
		{"carrier for GIN gone", func(p *patient) { p.env["NCCL_GIN_PLUGIN"] = "libnccl-net-dynamiccl-carrier.so" }, "carrier", Fail, []string{"NCCL_GIN_PLUGIN names the carrier", "is not there", "make carrier"}},
		{"carrier of an old build for GIN", func(p *patient) {
			p.carrierFor("NCCL_GIN_PLUGIN")
			p.compile(carrierFile, "int ncclGinPlugin_v11, ncclRmaPlugin_v14;")
		}, "carrier", Fail, []string{"an old build"}},
		{"carrier for RMA gone", func(p *patient) { p.env["NCCL_RMA_PLUGIN"] = "libnccl-net-dynamiccl-carrier.so" }, "carrier", Fail, []string{"NCCL_RMA_PLUGIN names the carrier", "is not there", "make carrier"}},
		{"carrier not meant", func(p *patient) { p.carrier(); delete(p.env, "DYNAMICCL_CARRIER") }, "carrier", Fail, []string{"refuses to start", "DYNAMICCL_CARRIER=1"}},
		{"carrier with few queues", func(p *patient) { p.carrier(); p.env["CUDA_DEVICE_MAX_CONNECTIONS"] = "15" }, "carrier", Fail, []string{"less than 16 of CUDA's queues", "CUDA_DEVICE_MAX_CONNECTIONS=32"}},
		{"carrier gone", func(p *patient) { p.env["NCCL_NET_PLUGIN"] = "dynamiccl-carrier" }, "carrier", Fail, []string{"is not there", "make carrier"}},
		{"carrier not loaded", func(p *patient) { p.env["DYNAMICCL_GIN_NET"] = "dynamiccl-carrier" }, "carrier", Warn, []string{"does not load it"}},
		{"another carrier", func(p *patient) { p.carrier(); p.compile("libnccl-net-dynamiccl-carrier.so", "int x;") }, "carrier", Fail, []string{"another library"}},
		{"a promise", func(p *patient) { delete(p.env, "LD_PRELOAD"); p.env["DYNAMICCL_NO_GRAPHS"] = "1" }, "preload", Warn, []string{"not in LD_PRELOAD"}},
		{"a promise for kernel events", func(p *patient) {
			delete(p.env, "LD_PRELOAD")
			p.env["DYNAMICCL_NO_GRAPHS"], p.env["DYNAMICCL_KERNEL_EVENTS"] = "1", "1"
		}, "preload", OK, []string{"promises"}},
		{"forced", func(p *patient) { p.env["NCCL_ALGO"] = "Ring" }, "forced", Warn, []string{"NCCL_ALGO=Ring", "unset NCCL_ALGO"}},
		{"forced by file", func(p *patient) { p.write(filepath.Join(p.root, ".nccl.conf"), "# x\nNCCL_PROTO=Simple\r\n") }, "forced", Warn, []string{"NCCL_PROTO=Simple", ".nccl.conf"}},
		{"relative", func(p *patient) { p.env["DYNAMICCL_DIR"] = "run" }, "directory", Fail, []string{"absolute"}},
		{"two directories", func(p *patient) { p.env["DYNAMICCL_DIR"] = "/elsewhere" }, "directory", Fail, []string{"/elsewhere", "export DYNAMICCL_DIR="}},
		{"no directory", func(p *patient) { os.RemoveAll(p.host.Dir) }, "directory", OK, []string{"makes it"}},
		{"no parent", func(p *patient) { p.move("/no/parent/here") }, "directory", Fail, []string{"make /no/parent"}},
		{"link", func(p *patient) { p.becomes(func() error { return os.Symlink(p.lib, p.host.Dir) }) }, "directory", Fail, []string{"symbolic link"}},
		{"file", func(p *patient) { p.becomes(func() error { return os.WriteFile(p.host.Dir, nil, 0o700) }) }, "directory", Fail, []string{"not a directory"}},
		{"open to all", func(p *patient) { os.Chmod(p.host.Dir, 0o755) }, "directory", Fail, []string{"0755", "nothing else uses", "if this is it, chmod 0700"}},
		{"another owner", func(p *patient) { p.host.EUID++ }, "directory", Fail, []string{"belongs to uid", "one user"}},
		{"no daemon", func(p *patient) {}, "daemon", Fail, []string{"no daemon runs", "dynamiccld serve"}},
		{"dead socket", func(p *patient) { p.write(filepath.Join(p.host.Dir, control.SocketName), "") }, "daemon", Fail, []string{"socket of a dead one"}},
		{"mute daemon", func(p *patient) { p.lock() }, "daemon", Fail, []string{"does not answer"}},
		{"failing daemon", func(p *patient) { b := fakebackend.Busy(); b.Refuse(); p.serve(b) }, "daemon", Fail, []string{"the core refuses"}},
		{"other version", func(p *patient) { p.serve(fakebackend.Empty()); p.host.Version = "v9" }, "daemon", Warn, []string{"v1.2.3", "v9", "restart"}},
		{"drops", func(p *patient) { p.serve(fakebackend.Busy()) }, "samples", Warn, []string{"7 of 123463"}},
		{"other layout in the directory", func(p *patient) { p.record(99, 4096) }, "files", Fail, []string{"one release"}},
		{"garbage in the directory", func(p *patient) {
			p.write(filepath.Join(p.host.Dir, "comm-00000000000000aa.shm"), strings.Repeat("x", 5000))
		}, "files", Warn, []string{"comm-00000000000000aa.shm"}},
		{"no store", func(p *patient) { p.host.StorePath = "none" }, "store", Warn, []string{"ends with the daemon"}},
		{"new store", func(p *patient) {}, "store", OK, []string{"does not exist yet"}},
		{"empty store", func(p *patient) { p.makeStore() }, "store", OK, []string{"holds 0 choices"}},
		{"garbage store", func(p *patient) { p.write(p.host.StorePath, "what is this") }, "store", Fail, []string{"not a DynamICCL store", "name another file"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPatient(t)
			c.spoil(p)
			p.wants(c.check, c.level, c.words...)
			for _, f := range p.run().Findings {
				if (f.Remedy == "") != (f.Level == OK) {
					t.Errorf("remedy of %+v", f)
				}
			}
		})
	}
}

// What is missing and cannot be made is no matter of waiting for the daemon.
func TestMissingWithoutPermission(t *testing.T) {
	p := newPatient(t)
	shut := filepath.Join(p.root, "shut")
	p.mkdir(shut)
	if err := errors.Join(os.Chmod(shut, 0o555), os.Chmod(p.root, 0o755)); err != nil {
		t.Fatal(err)
	}
	p.host.Dir, p.env["DYNAMICCL_DIR"], p.host.StorePath = filepath.Join(shut, "run"), filepath.Join(shut, "run"), filepath.Join(shut, "new", "store.db")
	if os.Geteuid() == 0 { // root may make files everywhere
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		unix.SetfsuidRetUid(65534)
		defer unix.SetfsuidRetUid(0)
	}
	p.wants("directory", Fail, "you may make nothing in "+shut, "DYNAMICCL_DIR")
	p.wants("store", Warn, "new/store.db does not exist, and you may not make it", "--store")
}

// A file system that is mounted read-only refuses root as well, and modes do not show it.
func TestReadOnly(t *testing.T) {
	p := newPatient(t)
	p.makeStore()
	state := filepath.Dir(p.host.StorePath)
	if err := unix.Mount(state, state, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("a folder is bound to itself as root in a container that may mount alone: %v", err)
	}
	defer func() { _ = unix.Unmount(state, unix.MNT_DETACH) }()
	p.wants("directory", OK)
	p.wants("store", OK)
	if err := unix.Mount("", state, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	p.wants("directory", Fail, "cannot be written", "DYNAMICCL_DIR")
	p.wants("store", Warn, "cannot be written", "--store")
}

// Nobody is told to remove what was learned: a user without a home has the store among the shared files, and others may put it there.
func TestStoreAmongSharedFiles(t *testing.T) {
	for _, name := range []string{"store.db", "mine.db"} {
		p := newPatient(t)
		p.serve(fakebackend.Empty())
		p.host.StorePath = filepath.Join(p.host.Dir, name)
		p.makeStore()
		if r := p.run(); r.Failures+r.Warnings != 0 {
			t.Errorf("%s: %s", name, text(r))
		}
	}
}

// TestDoctorChangesNothing: not even the directory that ranks would make.
func TestDoctorChangesNothing(t *testing.T) {
	p := newPatient(t)
	p.makeStore()
	before := p.listing()
	p.run()
	os.Remove(p.host.Dir)
	without := p.listing()
	p.run()
	if after := p.listing(); after != without {
		t.Errorf("before\n%s\nafter\n%s", without, after)
	}
	if !strings.HasPrefix(before, without[:20]) {
		t.Errorf("before\n%s\nafter\n%s", before, without)
	}
}

// Nobody is told to close a directory that others need.
func TestRemedyForAnOpenDirectory(t *testing.T) {
	for dir, closed := range map[string]bool{t.TempDir(): true, "/": false, "/etc": false} {
		if got := remedyOpen(dir); strings.Contains(got, "chmod") != closed || !strings.Contains(got, "nothing else uses") {
			t.Errorf("%s: %s", dir, got)
		}
	}
}
