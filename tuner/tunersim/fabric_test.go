package tunersim

import (
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// fabricSeed is fixed unless TEST_SEED says otherwise.
func fabricSeed(t testing.TB) uint64 {
	seed := uint64(1)
	if s := os.Getenv("TEST_SEED"); s != "" {
		v, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("TEST_SEED %q: %v", s, err)
		}
		seed = v
	}
	t.Logf("seed %d (TEST_SEED)", seed)
	return seed
}

// sweepBuckets are 30 buckets: three collectives from 1 KiB to 256 MiB.
func sweepBuckets() []state.Bucket {
	var bs []state.Bucket
	for _, c := range []actions.Collective{actions.AllReduce, actions.AllGather, actions.ReduceScatter} {
		for l := 10; l <= 28; l += 2 {
			bs = append(bs, state.Bucket{Collective: c, Log2Bytes: uint8(l)})
		}
	}
	return bs
}

func TestRandomMachinesGiveSoundTables(t *testing.T) {
	rng := rand.New(rand.NewPCG(fabricSeed(t), 2))
	sizes := map[int]bool{}
	for range 200 {
		m := RandomMachine(rng)
		if m.Shape.Ranks < 2 || m.Shape.Ranks > 64 || m.Shape.Nodes > 8 || m.NICs > 8 {
			t.Fatalf("%+v", m.Shape)
		}
		for c := range actions.Collective(actions.NumAsked) {
			n := len(m.Actions(c)) + 1
			sizes[n] = true
			if n < 4 || n > maxActions {
				t.Fatalf("%s %s: %d actions", m.Name, c, n)
			}
		}
		for _, cond := range m.Conditions(rng) {
			table := m.Table(cond, sweepBuckets(), rng)
			if len(table.Buckets()) != 30 || table.Condition != cond.Name {
				t.Fatalf("%s: %d buckets in %q", m.Name, len(table.Buckets()), table.Condition)
			}
			again, err := NewTable(table.Machine, table.NCCL, table.Shape, table.NICs, table.Condition, table.Rows())
			if err != nil {
				t.Fatalf("%s %s: %v", m.Name, cond.Name, err) // NewTable checks costs, counters and actions
			}
			for _, b := range table.Buckets() {
				best, ns, _ := table.Best(b)
				if other, otherNs, _ := again.Best(b); other != best || math.Abs(otherNs/ns-1) > 1e-9 {
					t.Fatalf("%s %s: best %s %g, from its rows %s %g", m.Name, b, best, ns, other, otherNs)
				}
			}
		}
	}
	t.Logf("%d sizes of action sets", len(sizes))
	if len(sizes) < 25 {
		t.Errorf("only %d sizes of action sets", len(sizes))
	}
}

func BenchmarkFabricTable(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	m := RandomMachineOf("socket", rng)
	var set []actions.Action
	for _, alg := range []actions.Algorithm{actions.Ring, actions.Tree} {
		for p := range actions.Protocol(actions.NumProtocols) {
			for _, ch := range standardChannels {
				set = append(set, actions.Action{Path: actions.PathCollective, Algorithm: alg, Protocol: p, Channels: ch})
			}
		}
	}
	m.SetActions(actions.AllReduce, set)
	var buckets []state.Bucket
	for l := range 30 {
		buckets = append(buckets, state.Bucket{Collective: actions.AllReduce, Log2Bytes: uint8(l + 1)})
	}
	quiet := Quiet()
	b.ReportAllocs()
	for b.Loop() {
		if m.Table(quiet, buckets, rng).points == nil {
			b.Fatal("no points")
		}
	}
}

func TestNewTableRejects(t *testing.T) {
	ok := []Row{{actions.AllReduce, 1024, actions.Default, 100, 0}, {actions.AllReduce, 1024, must(t, "Ring/LL/1"), 90, 80}}
	if table, err := NewTable("m", "2.28.9", state.Shape{Ranks: 4, Nodes: 1}, 2, "quiet", ok); err != nil || table.Topology().NICs != 2 {
		t.Fatalf("%v", err)
	}
	for _, c := range []struct {
		name string
		row  Row
	}{
		{"zero bytes", Row{actions.AllReduce, 0, actions.Default, 1, 0}},
		{"unknown collective", Row{actions.NumCollectives, 1, actions.Default, 1, 0}},
		{"no time", Row{actions.AllReduce, 1, actions.Default, 0, 0}},
		{"NaN", Row{actions.AllReduce, 1, actions.Default, math.NaN(), 0}},
		{"counter after signal", Row{actions.AllReduce, 1024, must(t, "Ring/LL/2"), 1, 2}},
		{"no default", Row{actions.AllReduce, 1, must(t, "Ring/LL/2"), 1, 0}},
		{"twice", Row{actions.AllReduce, 1024, must(t, "Ring/LL/1"), 1, 0}},
		{"no such action", Row{actions.AllReduce, 1024, actions.Action{Path: actions.PathLSA, Backend: actions.BackendProxy}, 1, 0}},
	} {
		if _, err := NewTable("m", "", state.Shape{}, 0, "", append(ok[:2:2], c.row)); !errors.Is(err, ErrBadTable) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := NewTable("m", "", state.Shape{}, 0, "", nil); !errors.Is(err, ErrBadTable) {
		t.Errorf("no rows: %v", err)
	}
}
