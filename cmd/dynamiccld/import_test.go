package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
	"dynamiccl/tuner"
	"dynamiccl/tuner/store"
)

const intoMachine = " --machine m --gpu-arch sm_90 --nccl-version 2.30.7"

// measured is a record of AllReduce on 8 ranks of one node.
func measured(t *testing.T, transport string, log2 uint8, choice string, refused ...string) tuner.Learned {
	t.Helper()
	parse := func(name string) actions.Action {
		a, err := actions.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	a := parse(choice)
	l := tuner.Learned{Key: tuner.Key{Machine: "m", GPUArch: "sm_90", NCCLVersion: 23007, Shape: state.Shape{Ranks: 8, Nodes: 1, Transport: transport},
		Bucket: state.Bucket{Collective: actions.AllReduce, Log2Bytes: log2}}, Action: a, CostNs: 9e3, Default: 10e3, Calls: 700,
		Evidence: map[actions.Action]tuner.Estimate{actions.Default: {N: 9, MeanNs: 10e3, VarLog: 0.1}, a: {N: 9, MeanNs: 9e3, VarLog: 0.1}}}
	for _, name := range refused {
		l.Refused = append(l.Refused, parse(name))
	}
	return l
}

func put(t *testing.T, path string, all ...tuner.Learned) {
	t.Helper()
	s, err := store.Open(path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put(all); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// stored is what a file has of AllReduce, by transport and size: "TRANSPORT/LOG2" gives "CHOICE CALLS REFUSED...".
func stored(t *testing.T, path string) map[string]string {
	t.Helper()
	s, err := store.Open(path, store.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	all := map[string]string{}
	if err := s.All(func(l tuner.Learned) error {
		words := []string{l.Action.String(), map[bool]string{false: "measured", true: "imported"}[l.Calls == 0]}
		for _, a := range l.Refused {
			words = append(words, a.String())
		}
		all[l.Key.Shape.Transport+"/"+l.Key.Bucket.String()] = strings.Join(words, " ")
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func check(t *testing.T, path string, want map[string]string) {
	t.Helper()
	got := stored(t, path)
	for k, w := range want {
		if got[k] != w {
			t.Errorf("%s: %q, want %q", k, got[k], w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("the store has %d records, want %d: %v", len(got), len(want), got)
	}
}

// An import fills what is missing. What was measured here stays unless --replace is given, and what is refused stays so in any case.
func TestImportKeepsWhatWasMeasured(t *testing.T) {
	w := newWorld(t)
	path := filepath.Join(w.root, "s.db")
	fill := func() {
		put(t, path, measured(t, "", 16, "Tree/LL", "Ring/LL/4"), measured(t, "nvlink", 17, "lsa/oneshot/8", "lsa/twoshot/8"))
	}
	rules := "allreduce,65536,262143,ring,ll128,8,1,8\n"
	fill()
	out, code := w.run("import - --store "+path+intoMachine, rules)
	check(t, path, map[string]string{"/AllReduce 64 KiB": "Tree/LL measured Ring/LL/4", "/AllReduce 128 KiB": "Ring/LL128/8 imported", "nvlink/AllReduce 128 KiB": "lsa/oneshot/8 measured lsa/twoshot/8"})
	if code != 0 || !strings.Contains(out, "AllReduce") || !strings.Contains(out, "1 added") || !strings.Contains(out, "2 kept") || !strings.Contains(out, "--replace") {
		t.Errorf("%d: %s", code, out)
	}
	fill()
	out, code = w.run("import - --replace --store "+path+intoMachine, rules)
	check(t, path, map[string]string{"/AllReduce 64 KiB": "Ring/LL128/8 imported Ring/LL/4", "/AllReduce 128 KiB": "Ring/LL128/8 imported", "nvlink/AllReduce 128 KiB": "Ring/LL128/8 imported lsa/twoshot/8"})
	if code != 0 || !strings.Contains(out, "2 replaced") {
		t.Errorf("%d: %s", code, out)
	}
	out, _ = w.run("import - --replace --store "+path+intoMachine, "allreduce,65536,131071,ring,ll,4,1,8\n")
	if got := stored(t, path)["/AllReduce 64 KiB"]; got != "Ring/LL128/8 imported Ring/LL/4" || !strings.Contains(out, "1 refused") {
		t.Errorf("a rule for what is refused here: %q, %s", got, out)
	}
}

// What calibrate refuses travels by export and import, counts where it arrives, and NCCL's example plugin passes over it.
func TestRefusalsTravel(t *testing.T) {
	w := newWorld(t)
	from, to, rules := filepath.Join(w.root, "from.db"), filepath.Join(w.root, "to.db"), filepath.Join(w.root, "rules.csv")
	put(t, from, measured(t, "nvlink", 16, "Tree/LL", "lsa/oneshot/8", "Ring/LL/4"), measured(t, "nvlink", 17, "default", "Ring/LL128/8"), measured(t, "nvlink", 18, "lsa/oneshot/8", "Ring/Simple"))
	put(t, to, measured(t, "nvlink", 16, "lsa/oneshot/8", "Tree/LL128"))
	if out, code := w.run("export -o "+rules+" --store "+from, ""); code != 0 || !strings.Contains(out, "4 refusals") {
		t.Fatalf("%d: %s", code, out)
	}
	out, code := w.run("import "+rules+" --store "+to+intoMachine, "")
	if code != 0 || !strings.Contains(out, "refusals") {
		t.Errorf("%d: %s", code, out)
	}
	check(t, to, map[string]string{"nvlink/AllReduce 64 KiB": "default measured Ring/LL/4 Tree/LL128 lsa/oneshot/8", "/AllReduce 64 KiB": "Tree/LL imported Ring/LL/4 lsa/oneshot/8",
		"/AllReduce 128 KiB": "default imported Ring/LL128/8", "/AllReduce 256 KiB": "default imported Ring/Simple"})
	if out, code := w.run("import - --store "+to+intoMachine, "#refused,allreduce,65536,bagel,1,8\n"); code == 0 || !strings.Contains(out, "line 1") {
		t.Errorf("what cannot be read is passed over: %d, %s", code, out)
	}
	for _, line := range slices.DeleteFunc(strings.Split(readAll(t, rules), "\n"), func(l string) bool { return strings.HasPrefix(l, "#") || l == "" }) {
		if !strings.HasPrefix(line, "allreduce,65536,131071,tree,ll,") {
			t.Errorf("NCCL's example reads %q", line)
		}
	}
}

func readAll(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
