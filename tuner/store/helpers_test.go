package store

import (
	"bytes"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
	"dynamiccl/tuner"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// TestMain runs as a child when a test asks for one, and lets TEST_SEED replay rapid's tests as well.
func TestMain(m *testing.M) {
	if mode := os.Getenv("DYN_STORE_CHILD"); mode != "" {
		children[mode](os.Getenv("DYN_STORE_PATH"))
		os.Exit(0)
	}
	if seed := os.Getenv("TEST_SEED"); seed != "" {
		if err := flag.Set("rapid.seed", seed); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

func newRand(t testing.TB) *rand.Rand {
	seed := uint64(1)
	if s := os.Getenv("TEST_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	t.Logf("TEST_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

var (
	shape8  = state.Shape{Ranks: 8, Nodes: 1, Transport: "nvlink"}
	ring24  = actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL128, Channels: 24}
	treeLL  = actions.Action{Path: actions.PathCollective, Algorithm: actions.Tree, Protocol: actions.LL}
	h200Key = tuner.Key{Machine: "8xH200/NVSwitch", GPUArch: "sm_90", NCCLVersion: 22809, Shape: shape8}
)

// learned gives a record of bucket i of the machine above.
func learned(i int, costNs float64) tuner.Learned {
	k := h200Key
	k.Bucket = state.Bucket{Collective: actions.Collective(i / state.NumBuckets), Log2Bytes: uint8(i % state.NumBuckets)}
	return tuner.Learned{Key: k, Action: ring24, CostNs: costNs, Default: 1.5 * costNs, Calls: 100, SinceNs: 1_760_000_000_000_000_000, SeenNs: 1_761_000_000_000_000_000,
		Evidence: map[actions.Action]tuner.Estimate{
			actions.Default: {N: 20, MeanNs: 1.5 * costNs, VarLog: 0.01},
			ring24:          {N: 80, MeanNs: costNs, VarLog: 0.02},
		}}
}

func batchOf(n int, costNs float64) (batch []tuner.Learned) {
	for i := range n {
		batch = append(batch, learned(i, costNs))
	}
	return batch
}

func same(a, b tuner.Learned) bool {
	ea, eb := a.Evidence, b.Evidence
	a.Evidence, b.Evidence = nil, nil
	return fmt.Sprint(a) == fmt.Sprint(b) && maps.Equal(ea, eb)
}

func sameAll(t testing.TB, got, want []tuner.Learned) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i := range got {
		if !same(got[i], want[i]) {
			t.Fatalf("record %d: %+v, want %+v", i, got[i], want[i])
		}
	}
}

func storePath(t testing.TB) string { return filepath.Join(t.TempDir(), "state.db") }

func mustOpen(t testing.TB, path string, o Options) *Store {
	t.Helper()
	s, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// filled makes a store of n records and gives its path.
func filled(t testing.TB, n int) string {
	t.Helper()
	path := storePath(t)
	s := mustOpen(t, path, Options{})
	if err := s.Put(batchOf(n, 5000)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func loadAll(t testing.TB, s *Store) (all []tuner.Learned) {
	t.Helper()
	if err := s.All(func(l tuner.Learned) error { all = append(all, l); return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

// asNobody runs fn without root's power over files: root may write everywhere, which would hide what is tested.
func asNobody(t testing.TB, fn func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		fn()
		return
	}
	const nobody = 65534
	runtime.LockOSThread() // the file system identity belongs to the thread
	defer runtime.UnlockOSThread()
	unix.SetfsuidRetUid(nobody)
	defer unix.SetfsuidRetUid(0)
	if uid, _ := unix.SetfsuidRetUid(-1); uid != nobody {
		t.Fatalf("cannot become nobody: file system user is %d", uid)
	}
	fn()
}

// logBuffer is a logger that a test can read.
func logBuffer() (*slog.Logger, *bytes.Buffer) {
	var b bytes.Buffer
	return slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelInfo})), &b
}

func anyAction() *rapid.Generator[actions.Action] {
	return rapid.Custom(func(t *rapid.T) actions.Action {
		switch rapid.IntRange(0, 3).Draw(t, "path") {
		case 0:
			return actions.Default
		case 1:
			return actions.Action{Path: actions.PathSymmetric}
		case 2:
			return actions.Action{Path: actions.PathLSA, Kernel: actions.Kernel(rapid.IntRange(0, actions.NumKernels-1).Draw(t, "kernel")),
				Channels: rapid.Uint8Max(actions.MaxCTAs).Draw(t, "CTAs")}
		}
		return actions.Action{Path: actions.PathCollective,
			Algorithm: actions.Algorithm(rapid.IntRange(0, actions.NumAlgorithms-1).Draw(t, "algorithm")),
			Protocol:  actions.Protocol(rapid.IntRange(0, actions.NumProtocols-1).Draw(t, "protocol")),
			Channels:  rapid.Uint8().Draw(t, "channels")}
	})
}

// anyName draws strings that try to look like parts of a key, with bytes that are no UTF-8.
func anyName() *rapid.Generator[string] {
	return rapid.OneOf(rapid.StringN(0, 20, 60), rapid.SampledFrom([]string{"", "/", "8r/1n/", "%2F", "a|b", "\xff\x00", "22809/"}))
}

func anyKey() *rapid.Generator[tuner.Key] {
	return rapid.Custom(func(t *rapid.T) tuner.Key {
		return tuner.Key{
			Machine: anyName().Draw(t, "machine"), GPUArch: anyName().Draw(t, "arch"),
			NCCLVersion: rapid.IntRange(0, math.MaxInt32).Draw(t, "nccl"),
			Shape: state.Shape{Ranks: rapid.IntRange(1, 1<<20).Draw(t, "ranks"), Nodes: rapid.IntRange(1, 1<<16).Draw(t, "nodes"),
				Transport: anyName().Draw(t, "transport")},
			Bucket: state.Bucket{Collective: actions.Collective(rapid.IntRange(0, actions.NumCollectives-1).Draw(t, "collective")),
				Log2Bytes: uint8(rapid.IntRange(0, state.NumBuckets-1).Draw(t, "log2"))},
		}
	})
}

func anyCost() *rapid.Generator[float64] {
	return rapid.Float64Range(math.SmallestNonzeroFloat64, math.MaxFloat64)
}

func anyInstant() *rapid.Generator[state.Ns] {
	return rapid.Map(rapid.Int64Range(0, math.MaxInt64), func(ns int64) state.Ns { return state.Ns(ns) })
}

func anyLearned() *rapid.Generator[tuner.Learned] {
	return rapid.Custom(func(t *rapid.T) tuner.Learned {
		l := tuner.Learned{Key: anyKey().Draw(t, "key"), Action: anyAction().Draw(t, "action"),
			CostNs: anyCost().Draw(t, "cost"), Calls: rapid.Uint64().Draw(t, "calls"),
			SinceNs: anyInstant().Draw(t, "since"), SeenNs: anyInstant().Draw(t, "seen")}
		if rapid.Bool().Draw(t, "default known") {
			l.Default = anyCost().Draw(t, "default")
		}
		if at := anyInstant().Draw(t, "diagnosed"); at > 0 && rapid.Bool().Draw(t, "diagnosis known") {
			l.Diagnosis, l.DiagnosisNs = agents.Diagnosis(rapid.IntRange(1, int(agents.NumDiagnoses)-1).Draw(t, "diagnosis")), at
		}
		for range rapid.IntRange(0, 5).Draw(t, "evidence") {
			e := tuner.Estimate{N: rapid.IntRange(1, math.MaxInt32).Draw(t, "n"), MeanNs: anyCost().Draw(t, "mean")}
			if e.N > 1 {
				e.VarLog = rapid.Float64Range(0, math.MaxFloat64).Draw(t, "variance")
			}
			if l.Evidence == nil {
				l.Evidence = map[actions.Action]tuner.Estimate{}
			}
			l.Evidence[anyAction().Draw(t, "action")] = e
		}
		for range rapid.IntRange(0, 3).Draw(t, "refused") {
			if a := anyAction().Draw(t, "action"); a != actions.Default && a != l.Action && !slices.Contains(l.Refused, a) {
				l.Refused = append(l.Refused, a)
			}
		}
		slices.SortFunc(l.Refused, func(a, b actions.Action) int { return strings.Compare(a.String(), b.String()) })
		return l
	})
}
