package tuner

import (
	"slices"
	"strings"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

const marksOfKernels = MarkOneShot | MarkTwoShot | MarkBulk

func names(set []actions.Action) string {
	var all []string
	for _, a := range set {
		all = append(all, a.String())
	}
	return strings.Join(all, " ")
}

func ours(a actions.Action) bool { return a.Path == actions.PathLSA }

// A bucket has the kernels whose bits all ranks set, with CTAs up to the first number that covers its smallest call in one
// pass; where only kernels' own times are told it has none.
func TestKernelsOfASet(t *testing.T) {
	rings := MarkSet(0b111_000)
	for _, c := range []struct {
		log2  uint8
		marks MarkSet
		want  string
	}{

		{10, MarkOneShot, "lsa/oneshot/1"},
		{12, MarkTwoShot, "lsa/twoshot/1 lsa/twoshot/4"},
		{14, MarkTwoShot, "lsa/twoshot/1 lsa/twoshot/4 lsa/twoshot/16"},
		{15, MarkOneShot | MarkBulk, "lsa/oneshot/1 lsa/oneshot/4 lsa/oneshot/16 lsa/oneshot/32"},
		{18, MarkBulk, ""},
		{18, MarkOneShot, "lsa/oneshot/1 lsa/oneshot/4 lsa/oneshot/16 lsa/oneshot/32 lsa/oneshot/64"},
		{18, MarkBulk | MarkDirect, ""},
		{20, MarkDirect, "lsa/direct/32 lsa/direct/64"},
		{19, marksOfKernels, "lsa/oneshot/1 lsa/oneshot/4 lsa/oneshot/16 lsa/oneshot/32 lsa/oneshot/64 " +
			"lsa/twoshot/1 lsa/twoshot/4 lsa/twoshot/16 lsa/twoshot/32 lsa/twoshot/64 lsa/bulk/32 lsa/bulk/64"},
		{0, MarkOneShot | MarkBulk, "lsa/oneshot/1"},
		{state.NumBuckets - 1, MarkBulk, "lsa/bulk/32 lsa/bulk/64"},
		{20, 0, ""},
	} {
		b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: c.log2}
		with, without := Choices(b, rings|c.marks, 2, state.Shape{Ranks: 2, Nodes: 1}, true), Choices(b, rings, 2, state.Shape{Ranks: 2, Nodes: 1}, true)
		if !slices.Equal(with[:len(without)], without) || names(with[len(without):]) != c.want {
			t.Errorf("2^%d, marks %x: %s, want %s", c.log2, c.marks, names(with[len(without):]), c.want)
		}
		for _, nodes := range []int{1, 2} { // kernels that NCCL times are NCCL's
			if slices.ContainsFunc(Choices(b, rings|c.marks, 2, state.Shape{Ranks: nodes, Nodes: nodes}, false), ours) {
				t.Errorf("2^%d: our kernels are to be measured by NCCL's events", c.log2)
			}
		}
	}
}

func TestMarkOf(t *testing.T) {
	all := append(parse(t, "Tree/LL", "Ring/LL128/4", "PAT/Simple", "lsa/oneshot/4", "lsa/twoshot", "lsa/bulk/64/t256", "gin/gdaki/2", "gin/proxy", "gin/proxy/8/c1"), actions.Default,
		actions.Action{Path: actions.PathSymmetric}, actions.Action{Path: actions.PathGIN})
	want := []MarkSet{1, 1 << 4, 1 << 20, 1 << 26, 1 << 27, 1 << 28, 1 << 24, 1 << 25, 1<<25 | 1<<22, 0, 0, 0}
	for i, a := range all {
		if MarkOf(a) != want[i] || want[i].Has(a) != (want[i] != 0 || a == actions.Default) || (^want[i]).Has(a) != (a == actions.Default) {
			t.Errorf("%s: bit %x, want %x", a, MarkOf(a), want[i])
		}
	}
}

// Our kernel ran where the sample says so and names it, with as many CTAs as the call had use for.
func TestOverrules(t *testing.T) {
	for _, c := range []struct {
		asked, ran string
		want       bool
	}{
		{"lsa/twoshot/16", "lsa/twoshot/16", false},
		{"lsa/twoshot/16", "lsa/twoshot/4", false},
		{"lsa/twoshot/16", "lsa/oneshot/16", true},
		{"lsa/oneshot/1", "default", true}, // a kernel that has no name here is none of ours
		{"lsa/oneshot/1", "Tree/LL/1", true},
		{"Tree/LL/1", "lsa/oneshot/1", true},
		{"default", "lsa/oneshot/1", true},
		{"gin/proxy/4", "gin/proxy/2", false},
		{"gin/proxy/4", "gin/gdaki/4", true},
		{"gin/proxy/4", "default", true},
		{"gin/proxy/4", "lsa/oneshot/4", true},
		{"default", "gin/proxy/4", true},
		{"default", "Ring/LL/4", false},
		{"Ring/LL/4", "Ring/LL/2", false},
		{"Ring/LL/4", "default", false},
		{"Ring/LL/4", "Ring/LL128/4", true},
		{"Ring/LL/4", "Tree/LL/4", true},
	} {
		pair := parse(t, c.asked, c.ran)
		if got := overrules(pair[1], pair[0]); got != c.want {
			t.Errorf("%s ran for %s: overruled %v", c.ran, c.asked, got)
		}
	}
}

// kernelCore is a core with one communicator, of four ranks on a node.
func kernelCore(t *testing.T, cfg Config, e CommJoined) *Core {
	t.Helper()
	e.Shape = state.Shape{Ranks: 4, Nodes: 1}
	return coreOf(t, agents.NameUCB, cfg, e)
}

// entryOf gives the newest plan's entry of a bucket.
func entryOf(plans []Plan, b state.Bucket) (e Entry) {
	for _, p := range plans {
		for _, found := range p.Entries {
			if found.Bucket == b {
				e = found
			}
		}
	}
	return e
}

// Ranks open each other's memory while they make calls already: the bits come when the bucket is known and measured. From
// then on our kernels are tried, and the fastest comes into force.
func TestKernelsFoundLate(t *testing.T) {
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 14}
	us := map[string]state.Ns{"lsa/twoshot/16": 4, "lsa/twoshot/4": 6, "lsa/oneshot/16": 5, "default": 10}
	core := kernelCore(t, Config{Explore: true}, CommJoined{})
	var entry Entry
	seq, version := uint64(0), uint32(0)
	tried := map[actions.Action]bool{}
	call := func(a actions.Action) {
		ns := us[a.String()] * 1000
		if ns == 0 {
			ns = 12_000
		}
		for r := range int32(4) {
			core.Step(state.Ns(seq), &Sample{Comm: 1, Seq: seq, Rank: r, Bucket: b, Bytes: 20_000, Plan: version, Action: a, Ran: a,
				SignalNs: ns + 2000, CounterNs: ns + 2000, EventTimed: true, Made: uint16(seq)})
		}
		tried[a] = true
		seq++
	}
	play := func(rounds int) {
		for range rounds {
			if plans := core.Step(state.Ns(seq), Tick{}).Plans; len(plans) > 0 {
				entry = entryOf(plans, b)
				version++
				core.Step(state.Ns(seq), Published{Comm: 1, Version: uint64(version)})
				for _, a := range entry.Trials {
					call(a)
				}
			}
			for range 20 {
				call(entry.Base)
			}
		}
	}
	core.Step(1, Marks{Comm: 1, Bucket: b, Set: 0b111_000})
	play(60)
	for a := range tried {
		if ours(a) {
			t.Fatalf("%s was tried before any rank could run it", a)
		}
	}
	core.Step(1, Marks{Comm: 1, Bucket: b, Set: 0b111_000 | MarkOneShot | MarkTwoShot})
	play(120)
	if entry.Base.String() != "lsa/twoshot/16" {
		t.Errorf("%s is in force", entry.Base)
	}
	for a := range tried {
		if a.Kernel == actions.Bulk {
			t.Errorf("%s was tried, which no rank can run", a)
		}
	}
	if v := core.Buckets()[0]; v.Choice.String() != "lsa/twoshot/16" || v.SpeedUp < 2 || core.Totals().Overruled != 0 {
		t.Errorf("%+v, %+v", v, core.Totals())
	}
	core.Step(1, Marks{Comm: 1, Bucket: b, Set: 0b111_000 | MarkOneShot}) // a rank cannot any more
	if e := entryOf(core.Step(2, Tick{}).Plans, b); e.Base.Kernel == actions.TwoShot || slices.ContainsFunc(e.Trials, func(a actions.Action) bool { return a.Kernel == actions.TwoShot }) {
		t.Errorf("without the bit: %+v", e)
	}
}

// What ran instead of our kernel is no cost of it.
func TestKernelThatDidNotRun(t *testing.T) {
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 12}
	core := kernelCore(t, Config{Explore: true}, CommJoined{})
	core.Step(1, Marks{Comm: 1, Bucket: b, Set: 0b001_000 | MarkOneShot})
	all := parse(t, "lsa/oneshot/4", "Ring/LL/2", "lsa/oneshot/1")
	for seq, ran := range []actions.Action{actions.Default, all[1], all[2]} {
		for r := range int32(4) {
			core.Step(2, &Sample{Comm: 1, Seq: uint64(seq), Rank: r, Bucket: b, Bytes: 5000, Action: all[0], Ran: ran, SignalNs: 5000, EventTimed: true})
		}
	}
	if totals, v := core.Totals(), core.Buckets()[0]; totals.Groups != 3 || totals.Overruled != 2 || v.Calls != 1 {
		t.Errorf("%+v, %d calls", totals, v.Calls)
	}
}

// A stored kernel, and one that an earlier daemon has in force, waits for the ranks' marks, however well it was measured.
func TestStoredKernelsWaitForMarks(t *testing.T) {
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 14}
	all := parse(t, "lsa/oneshot/4", "Ring/LL/4")
	stored := func(a actions.Action) []Learned {
		return []Learned{{Key: Key{Bucket: b}, Action: a, Calls: 9, CostNs: 4000, Default: 9000,
			Evidence: map[actions.Action]Estimate{actions.Default: {N: 9, MeanNs: 9000}, a: {N: 9, MeanNs: 4000}}}}
	}
	for _, c := range []struct {
		what string
		e    CommJoined
	}{
		{"stored", CommJoined{Prior: stored(all[0])}},
		{"in force, another stored", CommJoined{Prior: stored(all[1]), InForce: map[state.Bucket]actions.Action{b: all[0]}}},
		{"in force", CommJoined{InForce: map[state.Bucket]actions.Action{b: all[0]}}},
	} {
		core := kernelCore(t, Config{}, c.e)
		if e := entryOf(core.Step(2, Tick{}).Plans, b); e.ID != 0 {
			t.Errorf("%s: the first plan has %+v", c.what, e)
		}
		for _, m := range []struct {
			marks MarkSet
			ours  bool
		}{{0b001_000, false}, {0b001_000 | MarkTwoShot, false}, {0b001_000 | MarkTwoShot | MarkOneShot, true}} {
			core.Step(3, Marks{Comm: 1, Bucket: b, Set: m.marks})
			if e := entryOf(core.Step(4, Tick{}).Plans, b); (e.Base == all[0]) != m.ours || len(e.Trials) > 0 {
				t.Errorf("%s, marks %x: %+v", c.what, m.marks, e)
			}
		}
	}
}

// With fixed numerics collectives that add up keep NCCL's own choice; our kernels move data as exactly as NCCL's.
func TestFixedNumericsOfKernels(t *testing.T) {
	for _, cfg := range []Config{{Explore: true, FixedNumerics: true}, {Explore: true}} {
		core := kernelCore(t, cfg, CommJoined{FixedNumerics: !cfg.FixedNumerics})
		for c := range actions.Collective(actions.NumCollectives) {
			b := state.Bucket{Collective: c, Log2Bytes: 14}
			core.Step(2, Marks{Comm: 1, Bucket: b, Set: 0b111_000 | marksOfKernels})
			set := core.comms[1].buckets[c][14].set
			if has := slices.ContainsFunc(set, ours); has == actions.ReductionOrderMatters(c) || !has && len(set) != 1 {
				t.Errorf("%s: %s", c, names(set))
			}
		}
	}
}

// The first call of a kernel is its own warm-up; each kernel and number of CTAs has one.
func TestFirstRunOfAKernel(t *testing.T) {
	var b bucket
	for i, c := range []struct {
		action string
		want   bool
	}{{"lsa/oneshot/1", true}, {"lsa/oneshot/1", false}, {"Ring/LL/1", false}, {"lsa/oneshot/4", true}, {"lsa/twoshot/1", true}, {"lsa/oneshot/4", false}, {"default", false}, {"gin/proxy/2", true}, {"gin/proxy/2", false}} {
		if got := b.firstRun(parse(t, c.action)[0]); got != c.want {
			t.Errorf("call %d, %s: first run %v", i, c.action, got)
		}
	}
}
