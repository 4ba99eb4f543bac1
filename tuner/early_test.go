package tuner_test

import (
	"slices"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

func bucketOf(c actions.Collective, log2 uint8) state.Bucket {
	return state.Bucket{Collective: c, Log2Bytes: log2}
}

// joined gives a core and the entries of a communicator's first plan, before any call.
func joined(t *testing.T, e tuner.CommJoined) (*tuner.Core, map[state.Bucket]tuner.Entry) {
	t.Helper()
	learner, err := agents.New(agents.NameUCB)
	if err != nil {
		t.Fatal(err)
	}
	core, err := tuner.New(tuner.Config{NewLearner: learner, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	e.Comm = comm
	core.Step(1, e)
	return core, entriesOf(t, core.Step(2, tuner.Tick{}))
}

func entriesOf(t *testing.T, out tuner.Output) map[state.Bucket]tuner.Entry {
	t.Helper()
	if len(out.Plans) != 1 {
		t.Fatalf("%d plans", len(out.Plans))
	}
	by := map[state.Bucket]tuner.Entry{}
	ids := map[uint32]bool{}
	for _, e := range out.Plans[0].Entries {
		if _, twice := by[e.Bucket]; twice || ids[e.ID] {
			t.Fatalf("entries %v", out.Plans[0].Entries)
		}
		by[e.Bucket], ids[e.ID] = e, true
	}
	return by
}

// Stored choices are in the first plan, before a call of their size told what NCCL allows; those that nobody measured, or
// that must not be, are not.
func TestFirstPlanHasStoredChoices(t *testing.T) {
	ring := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL, Channels: 8}
	tree, wide := ring, ring
	tree.Algorithm, wide.Channels = actions.Tree, 32
	learned := func(c actions.Collective, log2 uint8, a actions.Action, calls uint64) tuner.Learned {
		return tuner.Learned{Key: tuner.Key{Bucket: bucketOf(c, log2)}, Action: a, Calls: calls, CostNs: 900, Default: 1000}
	}
	prior := []tuner.Learned{learned(actions.AllReduce, 10, ring, 9), learned(actions.AllGather, 11, ring, 9), learned(actions.AllReduce, 12, ring, 0),
		learned(actions.AllGather, 13, tree, 9), learned(actions.AllGather, 14, wide, 9), learned(actions.AllGather, 15, actions.Default, 9)}
	for _, c := range []struct {
		what  string
		e     tuner.CommJoined
		wants []state.Bucket
	}{
		{"one node", tuner.CommJoined{Shape: state.Shape{Ranks: 4, Nodes: 1}, MaxChannels: 24}, []state.Bucket{bucketOf(actions.AllReduce, 10), bucketOf(actions.AllGather, 11)}},
		{"two nodes", tuner.CommJoined{Shape: state.Shape{Ranks: 4, Nodes: 2}}, []state.Bucket{bucketOf(actions.AllReduce, 10), bucketOf(actions.AllGather, 11),
			bucketOf(actions.AllGather, 13), bucketOf(actions.AllGather, 14)}},
		{"fixed numerics", tuner.CommJoined{Shape: state.Shape{Ranks: 4, Nodes: 1}, MaxChannels: 24, FixedNumerics: true}, []state.Bucket{bucketOf(actions.AllGather, 11)}},
	} {
		for _, explore := range []bool{false, true} {
			c.e.Prior, c.e.Explore, c.e.LastID = prior, explore, 7
			_, by := joined(t, c.e)
			if len(by) != len(c.wants) {
				t.Errorf("%s: %v", c.what, by)
			}
			for _, b := range c.wants {
				if e := by[b]; e.Base == actions.Default || len(e.Trials) > 0 || e.ID <= 7 {
					t.Errorf("%s: %s has %+v", c.what, b, e)
				}
			}
		}
	}
}

// What the ranks then tell counts: a choice that NCCL marks, or about which ranks differ, leaves the plan, and the others
// stay.
func TestMarksOverruleStoredChoices(t *testing.T) {
	ring := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL, Channels: 8}
	bit := tuner.MarkSet(1 << (3*uint(ring.Algorithm) + uint(ring.Protocol)))
	var prior []tuner.Learned
	for log2 := uint8(10); log2 < 14; log2++ {
		prior = append(prior, tuner.Learned{Key: tuner.Key{Bucket: bucketOf(actions.AllReduce, log2)}, Action: ring, Calls: 9, CostNs: 900, Default: 1000,
			Evidence: map[actions.Action]tuner.Estimate{actions.Default: {N: 9, MeanNs: 1000}, ring: {N: 9, MeanNs: 900}}})
	}
	core, by := joined(t, tuner.CommJoined{Shape: state.Shape{Ranks: 4, Nodes: 1}, Prior: prior})
	if len(by) != 4 {
		t.Fatalf("%v", by)
	}
	core.Step(3, tuner.Marks{Comm: comm, Bucket: bucketOf(actions.AllReduce, 10), Set: bit})
	core.Step(3, tuner.Marks{Comm: comm, Bucket: bucketOf(actions.AllReduce, 11), Set: bit << 1})
	core.Step(3, tuner.Marks{Comm: comm, Bucket: bucketOf(actions.AllReduce, 12), Set: bit, Differ: true})
	by = entriesOf(t, core.Step(4, tuner.Tick{}))
	for log2, want := range map[uint8]actions.Action{10: ring, 11: actions.Default, 12: actions.Default, 13: ring} {
		if got := by[bucketOf(actions.AllReduce, log2)].Base; got != want {
			t.Errorf("2^%d: %s, want %s", log2, got, want)
		}
	}
}

// hundred gives as many stored choices, each with more to gain than the one before; of the i-th.
func hundred(of func(i int) actions.Action) (prior []tuner.Learned) {
	for i := range 100 {
		prior = append(prior, tuner.Learned{Key: tuner.Key{Bucket: bucketOf(actions.Collective(i/20), uint8(i%20))}, Action: of(i), Calls: 1, CostNs: 100, Default: 100 + float64(i)})
	}
	return prior
}

// What a calibration stores finds room for all of its sizes: those that run the same have one entry between them.
func TestFirstPlanHasAllThatIsStored(t *testing.T) {
	prior := hundred(func(i int) actions.Action {
		return actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL, Channels: uint8(1 + i%tuner.MaxEntries)}
	})
	if _, by := joined(t, tuner.CommJoined{Shape: state.Shape{Ranks: 4, Nodes: 1}, Prior: prior}); len(by) != len(prior) {
		t.Errorf("%d of %d are planned", len(by), len(prior))
	}
}

// A plan has room for so many that differ; the greatest gains come first, and what an earlier daemon has in force stays.
func TestFirstPlanIsBounded(t *testing.T) {
	other := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.Simple, Channels: 4}
	prior := hundred(func(i int) actions.Action {
		return actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.Protocol(i / 50), Channels: uint8(1 + i%50)}
	})
	running := prior[99].Key.Bucket
	_, by := joined(t, tuner.CommJoined{Shape: state.Shape{Ranks: 4, Nodes: 1}, Prior: prior, InForce: map[state.Bucket]actions.Action{running: other}})
	if len(by) != tuner.MaxEntries || by[running].Base != other {
		t.Fatalf("%d entries, %v", len(by), by[running])
	}
	for i, l := range prior {
		if _, planned := by[l.Key.Bucket]; planned != (i >= len(prior)-tuner.MaxEntries) {
			t.Errorf("gain of %d%%: planned %v", i, planned)
		}
	}
	if _, by = joined(t, tuner.CommJoined{Shape: state.Shape{Ranks: 4, Nodes: 1}, Prior: slices.Clone(prior[:0])}); len(by) != 0 {
		t.Errorf("nothing is stored, the plan has %v", by)
	}
}

// Stored choices of our own kernels wait until every rank can run them; then they are in the plan before any call of their
// size. What an earlier daemon has in force is what stays.
func TestStoredKernelsWaitUntilTheyAreOpen(t *testing.T) {
	ring := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL, Channels: 8}
	ours := actions.Action{Path: actions.PathLSA, Kernel: actions.TwoShot, Channels: 16}
	learned := func(c actions.Collective, log2 uint8, a actions.Action) tuner.Learned {
		return tuner.Learned{Key: tuner.Key{Bucket: bucketOf(c, log2)}, Action: a, Calls: 9, CostNs: 500, Default: 1000}
	}
	prior := []tuner.Learned{learned(actions.AllReduce, 10, ours), learned(actions.AllReduce, 11, ring), learned(actions.AllGather, 12, ours), learned(actions.AllReduce, 13, ring),
		learned(actions.AllReduce, 14, ours)}
	inForce := map[state.Bucket]actions.Action{bucketOf(actions.AllReduce, 13): ours, bucketOf(actions.AllReduce, 14): ring}
	for _, fixed := range []bool{false, true} {
		core, by := joined(t, tuner.CommJoined{Shape: state.Shape{Ranks: 4, Nodes: 1}, EventTimed: true, Prior: prior, InForce: inForce, FixedNumerics: fixed})
		want := map[state.Bucket]actions.Action{bucketOf(actions.AllReduce, 11): ring, bucketOf(actions.AllReduce, 14): ring}
		if fixed {
			want = nil
		}
		check := func(when string) {
			t.Helper()
			if len(by) != len(want) {
				t.Errorf("%s, fixed numerics %v: %v", when, fixed, by)
			}
			for b, a := range want {
				if by[b].Base != a {
					t.Errorf("%s, fixed numerics %v: %s has %s, want %s", when, fixed, b, by[b].Base, a)
				}
			}
		}
		check("at first")
		core.Step(3, tuner.KernelsOpen{Comm: comm})
		by = entriesOf(t, core.Step(4, tuner.Tick{}))
		if want == nil {
			want = map[state.Bucket]actions.Action{}
		} else {
			want[bucketOf(actions.AllReduce, 10)], want[bucketOf(actions.AllReduce, 13)] = ours, ours
		}
		want[bucketOf(actions.AllGather, 12)] = ours
		check("once they are open")
		core.Step(5, tuner.KernelsOpen{Comm: comm})
		core.Step(5, tuner.KernelsOpen{Comm: comm + 1})
		if out := core.Step(6, tuner.Tick{}); len(out.Plans) > 0 {
			t.Errorf("told twice: %+v", out.Plans)
		}
		// The first call of a size tells what it has room for.
		core.Step(7, tuner.Marks{Comm: comm, Bucket: bucketOf(actions.AllGather, 12), Set: tuner.MarkOf(ring)})
		delete(want, bucketOf(actions.AllGather, 12))
		by = entriesOf(t, core.Step(8, tuner.Tick{}))
		check("once marks came")
	}
}

// Calls that run what is stored of our own kernels ask NCCL nothing, and are learned from all the same, by what ours can do. Where all sizes of a
// program want to try something a plan has no room for all trials, and has all choices.
func TestStoredKernelsAreLearnedFrom(t *testing.T) {
	shape, ours := state.Shape{Ranks: 4, Nodes: 1}, map[state.Bucket]actions.Action{}
	var prior []tuner.Learned
	var buckets []state.Bucket
	for _, c := range []actions.Collective{actions.AllReduce, actions.AllGather, actions.ReduceScatter} {
		for log2 := uint8(3); log2 < 30; log2++ {
			b := bucketOf(c, log2)
			set := tuner.Choices(b, 1<<26, 24, shape, true)
			if len(set) < 2 {
				continue
			}
			buckets, ours[b] = append(buckets, b), set[1]
			prior = append(prior, tuner.Learned{Key: tuner.Key{Bucket: b}, Action: set[1], Calls: 9, CostNs: 500, Default: 1000})
		}
	}
	learner, err := agents.New(agents.NameUCB)
	if err != nil {
		t.Fatal(err)
	}
	core, err := tuner.New(tuner.Config{NewLearner: learner, Explore: true, Guard: agents.DefaultGuardConfig()})
	if err != nil {
		t.Fatal(err)
	}
	core.Step(1, tuner.CommJoined{Comm: comm, Shape: shape, MaxChannels: 24, EventTimed: true, Explore: true, Prior: prior, Multiprocessors: 132})
	core.Step(2, tuner.Tick{})
	core.Step(3, tuner.KernelsOpen{Comm: comm})
	if by := entriesOf(t, core.Step(3, tuner.Tick{})); len(by) != len(buckets) {
		t.Fatalf("%d stored choices of %d before any call", len(by), len(buckets))
	}
	for _, b := range buckets {
		core.Step(4, tuner.Marks{Comm: comm, Bucket: b, Set: 1 << 26})
	}
	by := entriesOf(t, core.Step(5, tuner.Tick{}))
	trials := 0
	for _, b := range buckets {
		if by[b].Base != ours[b] {
			t.Errorf("%s: %v is in force, stored is %v", b, by[b].Base, ours[b])
		}
		if len(by[b].Trials) > 0 {
			trials++
		}
	}
	if views := core.Buckets(); len(views) != len(buckets) || len(buckets) <= tuner.MaxEntries || trials < 40 {
		t.Errorf("%d sizes of %d are known, %d try something", len(views), len(buckets), trials)
	}
}
