package main

import (
	"math"
	"slices"
	"strings"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/cmd/internal/wholefile"
	"dynamiccl/state"
	"dynamiccl/tuner"
	"dynamiccl/tuner/store"
)

func action(t *testing.T, text string) actions.Action {
	t.Helper()
	a, err := actions.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// learned is one record; evidence gives calls and mean cost by action.
func learned(t *testing.T, nccl int, log2 uint8, evidence map[string]tuner.Estimate) tuner.Learned {
	l := tuner.Learned{Key: tuner.Key{Machine: "8x H200", GPUArch: "sm_90", NCCLVersion: nccl, Shape: state.Shape{Ranks: 16, Nodes: 2, Transport: "socket"},
		Bucket: state.Bucket{Collective: actions.AllReduce, Log2Bytes: log2}}, Action: actions.Default, CostNs: 1e4, Default: 1e4, Calls: 500,
		Evidence: map[actions.Action]tuner.Estimate{}}
	for name, e := range evidence {
		l.Evidence[action(t, name)] = e
	}
	return l
}

func makeStore(t *testing.T, path string, records ...tuner.Learned) *store.Store {
	t.Helper()
	s, err := store.Open(path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.Put(records); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestExperience(t *testing.T) {
	w := newWorld(t)
	many := func(ns float64) tuner.Estimate { return tuner.Estimate{N: 40, MeanNs: ns, VarLog: 0.01} }
	s := makeStore(t, w.path("store.db"),
		learned(t, 23007, 16, map[string]tuner.Estimate{"default": many(12_000), "Tree/LL128/8": many(10_000), "Ring/LL/4": {N: 2, MeanNs: 1}}),
		learned(t, 23007, 20, map[string]tuner.Estimate{"default": many(90_000), "Ring/Simple/16": many(70_000)}),
		learned(t, 22809, 16, map[string]tuner.Estimate{"default": many(9_000), "Ring/LL": many(8_000)}),
		learned(t, 22809, 17, map[string]tuner.Estimate{"default": {N: 1, MeanNs: 1e6}, "Ring/LL": {N: 1, MeanNs: 9e5}}), // imported
		learned(t, 22809, 18, map[string]tuner.Estimate{"default": many(9_000)}),
		learned(t, 22809, 19, map[string]tuner.Estimate{"Ring/LL": many(9_000), "Tree/LL": many(8_000)}))
	line := "--quiet --synthetic 0.5 --updates 1 --pretrain 0 --out $DIR/p --store $DIR/store.db "
	if _, stderr, code := w.run(line); code != exitFailed || !strings.Contains(stderr, "a daemon is using "+w.path("store.db")+": stop it") {
		t.Errorf("a store in use: exit %d: %s", code, stderr)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before := w.read("store.db")
	w.must(line)
	if !slices.Equal(before, w.read("store.db")) {
		t.Error("reading changed the store")
	}
	tables := w.fakes[0].tables
	if len(tables) != 2 {
		t.Fatalf("%d tables", len(tables))
	}
	old, present := tables[0], tables[1]
	if old.NCCL != "2.28.9" || present.NCCL != "2.30.7" || present.Machine != "8x H200 sm_90" || present.Condition != "experience" ||
		present.Shape != (state.Shape{Ranks: 16, Nodes: 2, Transport: "socket"}) {
		t.Errorf("tables %+v, %+v", old, present)
	}
	if n := len(old.Rows()); n != 2 {
		t.Errorf("%d rows of the old version: %v", n, old.Rows())
	}
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}
	if set := present.Actions(b); !slices.Equal(set, []actions.Action{actions.Default, action(t, "Tree/LL128/8")}) {
		t.Errorf("actions %v", set)
	}
	// A default's cost goes through a mean of logarithms.
	if ns, ok := present.Default(b); !ok || math.Abs(ns-12_000) > 1e-6 {
		t.Errorf("default %v", ns)
	}
	if ns, ok := present.Cost(b, action(t, "Tree/LL128/8")); !ok || ns != 10_000 {
		t.Errorf("cost %v", ns)
	}
	if data := w.policy("p").Data; data[0] != "experience of 8x H200 sm_90, NCCL 2.28.9, 16 ranks, 2 nodes, socket" {
		t.Errorf("data %q", data)
	}
}

// A real update on what a daemon learned.
func TestTrainingOnExperience(t *testing.T) {
	w := newWorld(t)
	w.start = newTrainer
	e := func(ns float64) tuner.Estimate { return tuner.Estimate{N: 40, MeanNs: ns, VarLog: 0.01} }
	s := makeStore(t, w.path("store.db"), learned(t, 23007, 16, map[string]tuner.Estimate{"default": e(12_000), "Tree/LL128/8": e(10_000), "Ring/LL/4": e(11_000)}))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	w.must("--quiet --synthetic 0 --pretrain 0 --updates 1 --out $DIR/p --store $DIR/store.db")
	if c := w.policy("p"); len(c.Data) != 1 {
		t.Errorf("data %q", c.Data)
	}
}

func TestStoresThatTeachNothing(t *testing.T) {
	w := newWorld(t)
	if err := makeStore(t, w.path("empty.db")).Close(); err != nil {
		t.Fatal(err)
	}
	if err := wholefile.Write(w.path("text.db"), []byte("no store, but long enough to be looked into")); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"empty.db": "let the daemon explore longer", "missing.db": "there is no store", "text.db": "not a DynamICCL store"} {
		if _, stderr, code := w.run("--store $DIR/" + file + " --out $DIR/p"); code != exitFailed || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit %d: %s", file, code, stderr)
		}
	}
}
