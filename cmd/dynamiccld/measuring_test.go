package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dynamiccl/cmd/dynamiccld/internal/workers"
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

// What is named is taken: of a name without a slash the loader would take the library that it finds, and PATH the program.
func TestNamedFilesAreTaken(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{ncclLibrary, workers.Name} {
		if err := os.WriteFile(name, nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m, ranks := measuring{nccl: ncclLibrary, worker: workers.Name}, 2
	if err := m.checkFlags(&ranks, 1, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if nccl, worker := filepath.Join(dir, ncclLibrary), filepath.Join(dir, workers.Name); m.nccl != nccl || m.worker != worker {
		t.Errorf("taken are %s and %s, want %s and %s", m.nccl, m.worker, nccl, worker)
	}
}

// Without the plugin nothing is measured, and nobody hears that something runs.
func TestMeasuringWithoutPlugin(t *testing.T) {
	w := newWorld(t)
	nccl, worker := filepath.Join(t.TempDir(), ncclLibrary), filepath.Join(t.TempDir(), workers.Name)
	for _, path := range []string{nccl, worker} {
		if err := os.WriteFile(path, nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range []string{"sweep", "calibrate", "bench"} {
		said, code := w.run(command+" --plugin-dir /nowhere --nccl-lib "+nccl+" --worker "+worker, "", "CUDA_VISIBLE_DEVICES=0,1")
		if code != exitFailed || strings.Contains(said, "running as plain NCCL") || !strings.Contains(said, "nothing is measured: ") || !strings.Contains(said, "make plugin") {
			t.Errorf("%s: exit code %d, says %s", command, code, said)
		}
	}
}

// A variable that ranks do not know, or not with this value, would change what is measured, and does not.
func TestMeasuringSaysWhatRanksDoNotKnow(t *testing.T) {
	var said bytes.Buffer
	a := &app{stderr: &said, environ: []string{"DYNAMICCL_NO_KERNEL=1", "DYNAMICCL_GIN=yes", "PATH=/"}, getenv: func(string) string { return "" }}
	if _, err := new(measuring).setup(a); err == nil {
		t.Error("a plugin was found")
	}
	for _, want := range []string{"DYNAMICCL_NO_KERNEL is not known; did you mean DYNAMICCL_NO_KERNELS?", `DYNAMICCL_GIN is "yes", and ranks want 0 or 1`} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("it does not say %q: %s", want, &said)
		}
	}
}

// What is named twice is measured once: of two choices of one size no plan can be made, and of a mean it would be twice the share.
func TestNamedTwice(t *testing.T) {
	twice := []string{"AllReduce", "AllGather", "allreduce", "AllReduce"}
	c, s, b := calibrateFlags{smallest: "8"}, sweepFlags{}, benchFlags{sizes: []string{"4K", "1K", "4096"}}
	c.o.Collectives, s.o.Collectives, b.o.Collectives = slices.Clone(twice), slices.Clone(twice), slices.Clone(twice)
	if err := errors.Join(c.parse(), s.parse(), b.parse()); err != nil {
		t.Fatal(err)
	}
	for _, got := range [][]string{c.o.Collectives, s.o.Collectives, b.o.Collectives} {
		if !slices.Equal(got, []string{"AllReduce", "AllGather"}) {
			t.Errorf("measured are %q", got)
		}
	}
	if !slices.Equal(b.o.Sizes, []uint64{4096, 1024}) {
		t.Errorf("bench measures %d", b.o.Sizes)
	}
}

// What rows of one table must have in common: NCCL's variables, and those of ours by which calls take another time.
func TestSettings(t *testing.T) {
	want := []string{"NCCL_NVLS_ENABLE=0", "DYNAMICCL_SOCKET_THREADS=0", "DYNAMICCL_NO_KERNELS=1", "DYNAMICCL_KERNELS=/x", "DYNAMICCL_SCRATCH_MIB=8", "DYNAMICCL_GIN=0",
		"DYNAMICCL_CARRIER_GBS=10"}
	others := []string{"HOME=/root", "NCCL_DEBUG=WARN", "NCCL_TUNER_PLUGIN=/p", "DYNAMICCL_DIR=/d", "DYNAMICCL_STORE=/s", "DYNAMICCL_QUIET=1", "DYNAMICCL_LATE_S=5"}
	if got := settings(slices.Concat(others, want)); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// Flags that are wrong are wrong with GPUs and without: the same words and exit code 2, before anything is looked at or started.
func TestBadFlagsNeedNoGPUs(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // no nvidia-smi
	w := newWorld(t)
	const empty = " is an empty list; name at least one, or leave the flag out for its default"
	for line, says := range map[string]string{
		"sweep --sizes=":             "--sizes" + empty,
		"sweep --collectives=":       "--collectives" + empty,
		"sweep --choices=":           "--choices" + empty,
		"sweep --channels=":          "--channels" + empty,
		"bench --phases=":            "--phases" + empty,
		"bench --arms=":              "--arms" + empty,
		"bench --sizes=":             "--sizes" + empty,
		"bench --collectives=":       "--collectives" + empty,
		"calibrate --collectives=":   "--collectives" + empty,
		"calibrate --ranks=":         "--ranks" + empty,
		"calibrate --nodes=":         "--nodes" + empty,
		"eval --learners=":           "--learners" + empty,
		"sweep --sizes=1K,,2K":       `--sizes: ""`,
		"sweep --sizes 1K --max 1G":  "--sizes are the sizes themselves: leave out --min, --max and --factor, or --sizes",
		"sweep --sizes 1K --min 0":   "--sizes are the sizes themselves",
		"sweep --nodes 0":            "--nodes 0: want 1 or more",
		"sweep --nodes 65":           "65 ranks: want 1 to 64",
		"sweep --ranks -1":           "-1 ranks: want 1 to 64",
		"sweep --rounds 0":           "--rounds 0: want",
		"sweep --load storm":         `--load "storm"`,
		"sweep --samples x.csv":      "add --calls stream",
		"sweep --buffers x":          `--buffers "x"`,
		"sweep --nccl-lib /nowhere":  "--nccl-lib: stat /nowhere",
		"sweep --worker /nowhere":    "--worker: stat /nowhere",
		"bench --time never":         `--time "never"`,
		"bench --arms plain":         "--arms: 1 of them; want 2",
		"bench --calls 0":            "--calls 0: want",
		"bench --comms 0":            "--comms 0: want 1 to 8",
		"bench --comms 9":            "--comms 9: want 1 to 8",
		"bench --comms 3":            "--comms 3: several communicators are timed in graphs alone: add --time graph, or leave --comms out",
		"bench --cpus-per-rank -1":   "--cpus-per-rank -1: want",
		"bench --ranks 1":            "1 ranks: want 2 or more",
		"sweep --calls foo":          `--calls "foo"`,
		"sweep --budget 5":           `--budget: "5" is not a duration; write a number with a unit, like 10ms`,
		"bench --batch 0":            "--batch 0s: want",
		"bench --timeout 0":          "--timeout 0s of a point: want",
		"bench --hosts":              "--hosts: one node",
		"bench --min-rounds -1":      "--min-rounds -1: want",
		"calibrate --nodes 1,0":      "2 ranks on 0 nodes",
		"calibrate --nodes 128":      "128 ranks on 128 nodes",
		"calibrate --budget 1s":      "--budget 1s",
		"calibrate --collectives Do": `--collectives "Do"`,
		"calibrate --buffers x":      `--buffers "x"`,
		"calibrate --timeout 0":      "--timeout 0s",
	} {
		bare, code := w.run(line, "")
		if code != exitUsage || !strings.Contains(bare, says) {
			t.Errorf("%s: exit code %d, says %s; want %d and %q", line, code, bare, exitUsage, says)
		}
		if gpus, code := w.run(line, "", "CUDA_VISIBLE_DEVICES=0,1,2,3"); code != exitUsage || gpus != bare {
			t.Errorf("%s: with GPUs exit code %d, says %s; want what is said without: %s", line, code, gpus, bare)
		}
	}
}
