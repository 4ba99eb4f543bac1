package tuner

import (
	"math"
	"slices"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

func parse(t *testing.T, names ...string) (all []actions.Action) {
	t.Helper()
	for _, name := range names {
		a, err := actions.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
	}
	return all
}

// Where every choice of LL is one device kernel a set has it once, under a name that can be planned; the rest stays.
func TestDeviceKernelIsOneChoice(t *testing.T) {
	marks, b := MarkSet(0b111_111|1<<14), state.Bucket{Collective: actions.AllReduce, Log2Bytes: 12}
	without := Choices(b, marks, 8, state.Shape{Ranks: 2, Nodes: 1}, true)
	with := Choices(b, marks|MarkDeviceLL, 8, state.Shape{Ranks: 2, Nodes: 1}, true)
	ll := func(a actions.Action) bool { return a.Path == actions.PathCollective && a.Protocol == actions.LL }
	want := slices.DeleteFunc(slices.Clone(without), ll)
	if got := slices.DeleteFunc(slices.Clone(with), ll); !slices.Equal(got, want) {
		t.Errorf("besides LL %v, want %v", got, want)
	}
	if n := len(without) - len(want); len(with) != len(want)+1 || n != 8 || !slices.Contains(with, deviceLL) || deviceLL.Check() != nil {
		t.Errorf("%v with a device kernel, %d choices of LL without", with, n)
	}
	if a, err := actions.FromWord(deviceLL.Word()); err != nil || a != deviceLL {
		t.Errorf("a plan carries it as %v, %v", a, err)
	}
	for _, none := range []MarkSet{0b110_110 | MarkDeviceLL, 0b110_111 | MarkDeviceLL} { // a ring's LL is marked -1
		if set := ActionSet(b, none, 8); slices.ContainsFunc(set, ll) {
			t.Errorf("marks %b: %v", none, set)
		}
	}
}

// What was stored or is in force under another name of the kernel goes on under the set's; elsewhere nothing is renamed.
func TestNamesOfTheDeviceKernel(t *testing.T) {
	old := parse(t, "Ring/LL/4", "Tree/LL/2", "Ring/LL/32")
	evidence := map[actions.Action]Estimate{actions.Default: {N: 6, MeanNs: 9000}, old[0]: {N: 3, MeanNs: 4000}, old[1]: {N: 1, MeanNs: 8000}}
	device, classic := ActionSet(state.Bucket{}, 0b111_111|MarkDeviceLL, 32), ActionSet(state.Bucket{}, 0b111_111, 32)
	costs := costsIn(device, evidence)
	if want := math.Exp((3*math.Log(4000) + math.Log(8000)) / 4); len(costs) != 2 || math.Abs(costs[deviceLL]-want) > 1e-6 || costs[actions.Default] != 9000 {
		t.Errorf("costs %v, want %g of %s", costs, want, deviceLL)
	}
	if costs := costsIn(classic, evidence); len(costs) != 3 || costs[old[0]] != 4000 || costs[old[1]] != 8000 {
		t.Errorf("without device kernels: %v", costs)
	}
	for _, a := range append(old, deviceLL) {
		if sameIn(device, a) != deviceLL || sameIn(classic, a) != a {
			t.Errorf("%s is %s and %s", a, sameIn(device, a), sameIn(classic, a))
		}
	}
	for _, a := range append(parse(t, "Ring/LL128/4", "Tree/Simple"), actions.Default) {
		if sameIn(device, a) != a {
			t.Errorf("%s is %s", a, sameIn(device, a))
		}
	}
}

// A choice of a former set is in the first plan as it was stored, and once the marks are known it is the same kernel under
// its one name: it stays in force, with what was measured of it. So it is with what an earlier daemon had in force.
func TestStoredChoicesOfAFormerSet(t *testing.T) {
	old := parse(t, "Ring/LL/4", "Tree/LL/8")
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 12}
	for _, explore := range []bool{false, true} {
		for i, a := range old {
			for _, running := range []bool{false, true} {
				learner, err := agents.New(agents.NameUCB)
				if err != nil {
					t.Fatal(err)
				}
				core, err := New(Config{NewLearner: learner, Explore: explore, Seed: 1})
				if err != nil {
					t.Fatal(err)
				}
				e := CommJoined{Comm: 1, Shape: state.Shape{Ranks: 4, Nodes: 1}, EventTimed: true, Explore: explore}
				if running {
					e.InForce = map[state.Bucket]actions.Action{b: a}
				} else {
					e.Prior = []Learned{{Key: Key{Bucket: b}, Action: a, Calls: 9, CostNs: 4000, Default: 9000,
						Evidence: map[actions.Action]Estimate{actions.Default: {N: 9, MeanNs: 9000}, a: {N: 9, MeanNs: 4000}}}}
				}
				core.Step(1, e)
				first := core.Step(2, Tick{}).Plans[0].Entries
				if running && len(first) != 0 || !running && (len(first) != 1 || first[0].Base != a) {
					t.Errorf("%s, explore %v, running %v: the first plan has %+v", a, explore, running, first)
				}
				core.Step(3, Marks{Comm: 1, Bucket: b, Set: 0b111_111 | MarkDeviceLL})
				out := core.Step(4, Tick{})
				if len(out.Plans) != 1 || len(out.Plans[0].Entries) != 1 {
					t.Fatalf("%d, %s: plans %+v", i, a, out.Plans)
				}
				entry := out.Plans[0].Entries[0]
				if entry.Base != deviceLL || (len(entry.Trials) > 0) != explore {
					t.Errorf("%s, explore %v, running %v: %+v", a, explore, running, entry)
				}
				for _, trial := range entry.Trials {
					if sameIn(core.comms[1].buckets[b.Collective][b.Log2Bytes].set, trial) != trial {
						t.Errorf("trial %s", trial)
					}
				}
				if v := core.Buckets()[0]; !running && v.Stored != 2.25 {
					t.Errorf("%s: stored speed-up %g", a, v.Stored)
				}
			}
		}
	}
}

// A rank may be asked about the device kernel only after some calls (the first came in a group): then the set shrinks.
func TestDeviceKernelFoundLate(t *testing.T) {
	core := kernelCore(t, Config{Explore: true}, CommJoined{})
	b := state.Bucket{Collective: actions.AllGather, Log2Bytes: 14}
	for _, c := range []struct {
		marks MarkSet
		size  int
	}{{0b001_000, 8}, {0b001_000 | MarkDeviceLL, 2}, {0b001_000 | MarkDeviceLL, 2}} {
		core.Step(2, Marks{Comm: 1, Bucket: b, Set: c.marks})
		if set := core.comms[1].buckets[b.Collective][b.Log2Bytes].set; len(set) != c.size {
			t.Errorf("marks %x: %v", c.marks, set)
		}
	}
}

// Where LL is the classic kernel, of what was learned where it may have been the device kernel only the rest is in a first plan, and is what
// learners begin with.
func TestFirstPlanWithoutLL(t *testing.T) {
	for _, c := range []struct {
		of    actions.Collective
		best  string
		there bool
	}{{actions.AllReduce, "Ring/LL", false}, {actions.AllGather, "Ring/LL/4", false}, {actions.ReduceScatter, "Ring/LL", false}, {actions.AllReduce, "Tree/LL128/8", true}, {actions.Reduce, "Ring/LL/4", true}, {actions.Broadcast, "Ring/LL/4", true}} {
		a, ll := parse(t, c.best)[0], parse(t, "Ring/LL/8")[0]
		b := state.Bucket{Collective: c.of, Log2Bytes: 12}
		stored := Learned{Key: Key{Bucket: b}, Action: a, Calls: 9, CostNs: 4000, Default: 9000,
			Evidence: map[actions.Action]Estimate{actions.Default: {N: 9, MeanNs: 9000}, a: {N: 9, MeanNs: 4000}, ll: {N: 9, MeanNs: 4500}}}
		core := kernelCore(t, Config{}, CommJoined{Prior: []Learned{stored.WithoutLL()}})
		if out := core.Step(2, Tick{}); (len(out.Plans) == 1 && len(out.Plans[0].Entries) == 1) != c.there {
			t.Errorf("%s of %s: the first plan has %+v", a, b, out.Plans)
		}
		core.Step(3, Marks{Comm: 1, Bucket: b, Set: 0b111_111})
		core.Step(4, Tick{})
		v := core.Buckets()[0]
		if (v.Choice == a) != c.there || (v.Stored != 0) != c.there || v.DeviceLL || len(stored.Evidence) != 3 {
			t.Errorf("%s of %s: %+v", a, b, v)
		}
	}
}

// What is in force is said to be the device kernel where NCCL has it, and not where a classic LL with NCCL's own channels has its name.
func TestViewNamesTheKernel(t *testing.T) {
	for marks, device := range map[MarkSet]bool{0b111_111 | MarkDeviceLL: true, 0b111_111: false} {
		b := state.Bucket{Collective: actions.AllGather, Log2Bytes: 12}
		prior := []Learned{{Key: Key{Bucket: b}, Action: deviceLL, Calls: 9, CostNs: 4000, Default: 9000,
			Evidence: map[actions.Action]Estimate{actions.Default: {N: 9, MeanNs: 9000}, deviceLL: {N: 9, MeanNs: 4000}}}}
		core := kernelCore(t, Config{}, CommJoined{Prior: prior, OwnGathers: true})
		core.Step(3, Marks{Comm: 1, Bucket: b, Set: marks})
		core.Step(4, Tick{})
		if v := core.Buckets()[0]; v.Choice != deviceLL || v.DeviceLL != device {
			t.Errorf("marks %x: %s, device kernel %v", marks, v.Choice, v.DeviceLL)
		}
	}
}
