package tuner

import (
	"maps"
	"slices"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"

	"pgregory.net/rapid"
)

func TestMostCTAs(t *testing.T) {
	for _, c := range []struct {
		outstanding, multiprocessors int
		want                         uint8
	}{{0, 0, 64}, {1, 0, 64}, {2, 0, 64}, {3, 0, 32}, {4, 0, 32}, {5, 0, 16}, {7, 0, 16}, {8, 0, 4}, {27, 0, 4}, {28, 0, 1}, {1000, 0, 1},
		{3, 132, 32}, {3, 160, 32}, {3, 78, 16}, {2, 78, 32}, {4, 78, 16}, {5, 78, 4}, {1, 4, 64}, {2, 4, 1}} {
		if got := mostCTAs(c.outstanding, c.multiprocessors); got != c.want {
			t.Errorf("%d kernels, %d multiprocessors: %d CTAs, want %d", c.outstanding, c.multiprocessors, got, c.want)
		}
	}
}

func TestSetWithin(t *testing.T) {
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 22}
	for _, c := range []struct {
		most uint8
		want string
	}{
		{64, "lsa/twoshot/1 lsa/twoshot/4 lsa/twoshot/16 lsa/twoshot/32 lsa/twoshot/64 lsa/bulk/32 lsa/bulk/64"},
		{32, "lsa/twoshot/1 lsa/twoshot/4 lsa/twoshot/16 lsa/twoshot/32 lsa/bulk/32"},
		{16, "lsa/twoshot/1 lsa/twoshot/4 lsa/twoshot/16 lsa/bulk/16"},
		{1, "lsa/twoshot/1 lsa/bulk/1"},
	} {
		if got := names(setWithin(lsaSet(b, MarkTwoShot|MarkBulk), c.most, true)); got != c.want {
			t.Errorf("%d: %s, want %s", c.most, got, c.want)
		}
	}
	for _, c := range []struct {
		most  uint8
		rails bool
		want  string
	}{
		{64, true, "gin/proxy gin/proxy/1 gin/proxy/8 gin/proxy/16/flat gin/proxy/16"},
		{16, true, "gin/proxy gin/proxy/1 gin/proxy/5 gin/proxy/16/flat"}, // a channel is three CTAs
		{4, true, "gin/proxy/1 gin/proxy/4/flat"},
		{1, true, "gin/proxy/1/flat"},
		{16, false, "gin/proxy gin/proxy/1 gin/proxy/8 gin/proxy/16/flat gin/proxy/16"},
		{1, false, "gin/proxy/1 gin/proxy/1/flat"},
	} {
		if got := names(setWithin(parse(t, "gin/proxy", "gin/proxy/1", "gin/proxy/8", "gin/proxy/16/flat", "gin/proxy/16"), c.most, c.rails)); got != c.want {
			t.Errorf("%d, %t: %s, want %s", c.most, c.rails, got, c.want)
		}
	}
	others := parse(t, "Ring/LL/32", "Tree/Simple/8")
	if got := setWithin(others, 1, true); !slices.Equal(got, others) {
		t.Errorf("%s of %s", names(got), names(others))
	}
	if got := withCTAs(parse(t, "lsa/oneshot")[0], 4, false); got.String() != "lsa/oneshot/4" { // its own number is 16
		t.Errorf("%s", got)
	}
}

// beyond are a plan's choices that have more CTAs than that.
func beyond(p Plan, most uint8) (all []Entry) {
	for _, e := range p.Entries {
		if slices.ContainsFunc(append([]actions.Action{e.Base}, e.Trials...), func(a actions.Action) bool { return withCTAs(a, most, false) != a }) {
			all = append(all, e)
		}
	}
	return all
}

// player makes a core's calls of one bucket: what it asks for, at that cost.
type player struct {
	*testing.T
	core    *Core
	bucket  state.Bucket
	us      map[string]state.Ns // 12 of others
	entry   Entry
	seq     uint64
	version uint32
	tried   map[actions.Action]bool
}

func (p *player) call(a actions.Action) {
	ns := p.us[a.String()] * 1000
	if ns == 0 {
		ns = 12_000
	}
	for r := range int32(4) {
		p.core.Step(state.Ns(p.seq), &Sample{Comm: 1, Seq: p.seq, Rank: r, Bucket: p.bucket, Bytes: 1 << p.bucket.Log2Bytes, Plan: p.version, Action: a, Ran: a,
			SignalNs: ns + 2000, CounterNs: ns + 2000, EventTimed: true, Made: uint16(p.seq)})
	}
	p.tried[a] = true
	p.seq++
}

// tick takes over a plan, if there is one.
func (p *player) tick() bool {
	plans := p.core.Step(state.Ns(p.seq), Tick{}).Plans
	if len(plans) == 0 {
		return false
	}
	p.entry = entryOf(plans, p.bucket)
	p.version++
	p.core.Step(state.Ns(p.seq), Published{Comm: 1, Version: uint64(p.version)})
	return true
}

func (p *player) play(rounds int) {
	for range rounds {
		if p.tick() {
			for _, a := range p.entry.Trials {
				p.call(a)
			}
		}
		for range 20 {
			p.call(p.entry.Base)
		}
	}
}

// A second and a third communicator of the process come: what is in force is the same kernel with fewer CTAs from the next plan on,
// and what was measured is where its learner begins. That one goes changes nothing.
func TestFewerCTAsBesideMoreKernels(t *testing.T) {
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 21}
	us := map[string]state.Ns{"lsa/bulk/64": 4, "lsa/bulk/32": 6, "lsa/twoshot/64": 5, "default": 10}
	p := &player{T: t, core: kernelCore(t, Config{Explore: true, SampleEvery: 1}, CommJoined{Outstanding: 2}), bucket: b, us: us,
		tried: map[actions.Action]bool{}}
	p.core.Step(1, Marks{Comm: 1, Bucket: p.bucket, Set: 0b111_000 | MarkTwoShot | MarkBulk})
	p.play(150)
	if v := p.core.Buckets()[0]; p.entry.Base.String() != "lsa/bulk/64" || v.MostCTAs != 0 || v.Beside != 0 {
		t.Fatalf("%s is in force, %+v", p.entry.Base, v)
	}
	calls, id := p.core.Buckets()[0].Calls, p.entry.ID

	p.core.comms[1].InForce = map[state.Bucket]actions.Action{b: parse(t, "lsa/twoshot/16")[0]} // with an earlier daemon, which counts no more
	p.core.Step(2, Outstanding{Comm: 1, Kernels: 4})
	p.tried = map[actions.Action]bool{}
	if !p.tick() || p.entry.Base.String() != "lsa/bulk/32" || p.entry.ID == id {
		t.Fatalf("%+v is in the next plan", p.entry)
	}
	if v := p.core.Buckets()[0]; v.MostCTAs != 32 || v.Beside != 3 || v.Calls != calls {
		t.Errorf("%+v, %d calls before", v, calls)
	}
	if known := p.core.comms[1].prior(p.bucket); known == nil || known.Evidence[p.entry.Base].N == 0 || known.Action.Channels != 64 {
		t.Errorf("its learner begins with %+v", known)
	}
	p.play(150)
	if p.entry.Base.String() != "lsa/bulk/32" {
		t.Errorf("%s is in force", p.entry.Base)
	}
	for a := range p.tried {
		if withCTAs(a, 32, false) != a {
			t.Errorf("%s was called", a)
		}
	}
	for _, fewer := range []int{1, 3, 4} {
		p.core.Step(3, Outstanding{Comm: 1, Kernels: fewer})
		if p.core.comms[1].mostPlaces() != 32 {
			t.Errorf("%d kernels: %d CTAs", fewer, p.core.comms[1].mostPlaces())
		}
	}
	p.core.Step(3, Outstanding{Comm: 9, Kernels: 8}) // nobody's
	for _, c := range []struct {
		multiprocessors int
		want            uint8
	}{{148, 32}, {78, 16}, {100, 16}, {0, 16}, {50, 4}} {
		p.core.Step(3, Outstanding{Comm: 1, Kernels: 4, Multiprocessors: c.multiprocessors})
		if got := p.core.comms[1].mostPlaces(); got != c.want {
			t.Errorf("%d multiprocessors: %d CTAs, want %d", c.multiprocessors, got, c.want)
		}
	}
}

// The program lets NCCL's kernels have fewer CTAs: ours stand for them, from the first plan on, and a rank that comes to say so later counts, too.
func TestFewerCTAsThanTheProgramAllows(t *testing.T) {
	us := map[string]state.Ns{"lsa/bulk/20": 4, "lsa/bulk/12": 5, "lsa/twoshot/20": 6, "default": 10}
	p := &player{T: t, core: kernelCore(t, Config{Explore: true, SampleEvery: 1}, CommJoined{Outstanding: 3, MaxCTAs: 20}), bucket: state.Bucket{Collective: actions.AllReduce, Log2Bytes: 21}, us: us,
		tried: map[actions.Action]bool{}}
	p.core.Step(1, Marks{Comm: 1, Bucket: p.bucket, Set: 0b111_000 | MarkTwoShot | MarkBulk})
	for _, c := range []struct {
		most uint8
		want string
	}{{20, "lsa/bulk/20"}, {12, "lsa/bulk/12"}} {
		p.core.Step(2, Outstanding{Comm: 1, Kernels: 3, MaxCTAs: int(c.most)})
		p.tick()
		clear(p.tried)
		p.play(150)
		if v := p.core.Buckets()[0]; p.entry.Base.String() != c.want || v.MostCTAs != int(c.most) || v.Beside != 0 {
			t.Errorf("%s is in force, at most %d CTAs beside %d kernels; want %s, %d, 0", p.entry.Base, v.MostCTAs, v.Beside, c.want, c.most)
		}
		for a := range p.tried {
			if withCTAs(a, c.most, false) != a {
				t.Errorf("at most %d CTAs, and %s was called", c.most, a)
			}
		}
	}
	if p.core.Step(3, Outstanding{Comm: 1, Kernels: 3, MaxCTAs: 40}); p.core.comms[1].mostPlaces() != 12 {
		t.Error("the bound has risen")
	}
}

// What was measured to be slower than NCCL's default with so few CTAs is not what a choice becomes.
func TestFewerCTAsThatLose(t *testing.T) {
	us := map[string]state.Ns{"lsa/twoshot/64": 4, "lsa/twoshot/32": 14, "lsa/twoshot/16": 20, "default": 10}
	for _, explore := range []bool{true, false} {
		p := &player{T: t, core: kernelCore(t, Config{Explore: true, SampleEvery: 1}, CommJoined{}), bucket: state.Bucket{Collective: actions.AllReduce, Log2Bytes: 20}, us: us,
			tried: map[actions.Action]bool{}}
		p.core.Step(1, Marks{Comm: 1, Bucket: p.bucket, Set: 0b111_000 | MarkTwoShot})
		p.play(150)
		if !slices.ContainsFunc(p.core.Buckets()[0].Choices, func(v ActionView) bool { return v.Action.String() == "lsa/twoshot/32" }) {
			t.Fatal("the learner found the best without a look at its neighbour")
		}
		p.core.SetExplore(explore)
		p.core.Step(2, Outstanding{Comm: 1, Kernels: 3})
		if p.tick(); p.entry.Base != actions.Default {
			t.Errorf("explore %v: %s is in the next plan", explore, p.entry.Base)
		}
	}
}

// Nobody has measured what a choice becomes, and it loses: it is in force until it and the default were called a few times.
func TestFewerCTAsThatNobodyMeasured(t *testing.T) {
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 20}
	p := &player{T: t, core: kernelCore(t, Config{SampleEvery: 1}, CommJoined{InForce: map[state.Bucket]actions.Action{b: parse(t, "lsa/twoshot/64")[0]}}), bucket: b,
		us: map[string]state.Ns{"lsa/twoshot/64": 4, "lsa/twoshot/32": 14, "default": 10}, tried: map[actions.Action]bool{}}
	p.core.Step(1, Marks{Comm: 1, Bucket: b, Set: 0b111_000 | MarkTwoShot})
	p.play(5)
	p.core.SetExplore(true)
	p.core.Step(2, Outstanding{Comm: 1, Kernels: 3})
	if p.tick(); p.entry.Base.String() != "lsa/twoshot/32" {
		t.Fatalf("%+v", p.entry)
	}
	for _, a := range p.entry.Trials {
		p.call(a)
	}
	if p.play(10); p.entry.Base.String() != "default" {
		t.Errorf("%s stays, %+v", p.entry.Base, p.core.Buckets()[0].Choices)
	}
}

// Stored choices have no more CTAs than there may be, whether they come before any call, with marks, from a person, or are in force
// with an earlier daemon.
func TestStoredChoicesFit(t *testing.T) {
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 20}
	all := parse(t, "lsa/oneshot/64", "lsa/oneshot/32", "lsa/oneshot/16")
	stored := func(evidence ...actions.Action) []Learned {
		l := Learned{Key: Key{Bucket: b}, Action: all[0], Calls: 9, CostNs: 4000, Default: 9000, SinceNs: 5,
			Evidence: map[actions.Action]Estimate{actions.Default: {N: 9, MeanNs: 9000}, all[0]: {N: 9, MeanNs: 4000}}}
		for _, a := range evidence {
			l.Evidence[a] = Estimate{N: 9, MeanNs: 9500}
		}
		return []Learned{l}
	}
	marks := Marks{Comm: 1, Bucket: b, Set: 0b001_000 | MarkOneShot}
	later := Outstanding{Comm: 1, Kernels: 3}
	for _, c := range []struct {
		what   string
		e      CommJoined
		events []Event
		want   string
	}{
		{"before any call", CommJoined{Prior: stored(), Outstanding: 2}, []Event{KernelsOpen{1}}, "lsa/oneshot/64"},
		{"before any call", CommJoined{Prior: stored(), Outstanding: 3}, []Event{KernelsOpen{1}}, "lsa/oneshot/32"},
		{"before any call", CommJoined{Prior: stored(), Outstanding: 5}, []Event{KernelsOpen{1}}, "lsa/oneshot/16"},
		{"another communicator before any call", CommJoined{Prior: stored()}, []Event{KernelsOpen{1}, later}, "lsa/oneshot/32"},
		{"before kernels are open", CommJoined{Prior: stored()}, []Event{later, KernelsOpen{1}}, "lsa/oneshot/32"},
		{"it loses so", CommJoined{Prior: stored(all[1]), Outstanding: 3}, []Event{KernelsOpen{1}}, "default"},
		{"it loses so, later", CommJoined{Prior: stored(all[1])}, []Event{KernelsOpen{1}, Tick{}, later}, "default"},
		{"with marks", CommJoined{Prior: stored(), Outstanding: 4}, []Event{marks}, "lsa/oneshot/32"},
		{"after marks", CommJoined{Prior: stored()}, []Event{marks, Tick{}, later}, "lsa/oneshot/32"},
		{"in force", CommJoined{InForce: map[state.Bucket]actions.Action{b: all[0]}, Outstanding: 3}, []Event{marks}, "lsa/oneshot/32"},
		{"fits", CommJoined{InForce: map[state.Bucket]actions.Action{b: all[2]}, Outstanding: 4}, []Event{marks, later}, "lsa/oneshot/16"},
		{"from a person", CommJoined{Outstanding: 3}, []Event{marks, Advised{Comm: 1, Prior: stored()}}, "lsa/oneshot/32"},
	} {
		core := kernelCore(t, Config{}, c.e) // nothing is explored: what is assumed stays
		for _, e := range c.events {
			core.Step(2, e)
		}
		core.Step(3, Marks{Comm: 1, Bucket: state.Bucket{Collective: actions.AllGather, Log2Bytes: 3}, Set: 0b001_000}) // so that there is a plan
		if e := entryOf(core.Step(4, Tick{}).Plans, b); e.Base.String() != c.want {
			t.Errorf("%s, %d and then: %s, want %s", c.what, c.e.Outstanding, e.Base, c.want)
		}
	}
}

// What was measured before, and not now, is as much dearer now as the default is.
func TestWithEarlier(t *testing.T) {
	all := parse(t, "lsa/oneshot/64", "lsa/oneshot/32", "default")
	now := Learned{Default: 20, Evidence: map[actions.Action]Estimate{all[0]: {3, 12, 0.1}, all[2]: {3, 20, 0.1}}}
	earlier := Learned{Default: 10, Evidence: map[actions.Action]Estimate{all[0]: {9, 5, 0.2}, all[1]: {9, 6, 0.2}, all[2]: {9, 10, 0.2}}}
	want := map[actions.Action]Estimate{all[0]: {3, 12, 0.1}, all[1]: {9, 12, 0.2}, all[2]: {3, 20, 0.1}}
	if got := withEarlier(now, &earlier); !maps.Equal(got, want) || len(now.Evidence) != 2 {
		t.Errorf("%v, want %v", got, want)
	}
	if got := withEarlier(now, nil); !maps.Equal(got, now.Evidence) {
		t.Errorf("%v", got)
	}
}

// Whatever comes and goes: no plan has a kernel of more CTAs than those outstanding beside it leave.
func TestNoPlanHasMoreCTAs(t *testing.T) {
	kernels := parse(t, "lsa/oneshot/64", "lsa/bulk/64", "lsa/direct/32", "lsa/twoshot/16", "lsa/twoshot", "Ring/LL/32", "default")
	rapid.Check(t, func(r *rapid.T) {
		core := kernelCore(t, Config{Explore: true}, CommJoined{})
		most := map[CommID]int{1: 0}
		comms := []CommID{1}
		entries := map[CommID][]Entry{}
		seq := uint64(0)
		bucketOf := func() state.Bucket {
			return state.Bucket{Collective: actions.AllReduce, Log2Bytes: uint8(rapid.IntRange(16, 22).Draw(r, "log2"))}
		}
		for range rapid.IntRange(1, 60).Draw(r, "steps") {
			id := rapid.SampledFrom(comms).Draw(r, "comm")
			switch rapid.IntRange(0, 7).Draw(r, "event") {
			case 0:
				n, b, a := rapid.IntRange(0, 30).Draw(r, "joined beside"), bucketOf(), rapid.SampledFrom(kernels).Draw(r, "stored")
				id = CommID(len(comms) + 1)
				comms, most[id] = append(comms, id), n
				core.Step(1, CommJoined{Comm: id, Shape: state.Shape{Ranks: 4, Nodes: 1}, EventTimed: true, Explore: seq%2 == 0, Outstanding: n,
					InForce: map[state.Bucket]actions.Action{bucketOf(): rapid.SampledFrom(kernels).Draw(r, "in force")},
					Prior:   []Learned{{Key: Key{Bucket: b}, Action: a, Calls: 9, CostNs: 1000, Default: 2000}}})
			case 1:
				core.Step(1, KernelsOpen{id})
			case 2, 3:
				n := rapid.IntRange(1, 30).Draw(r, "kernels")
				most[id] = max(most[id], n)
				core.Step(1, Outstanding{Comm: id, Kernels: n})
			case 4, 5:
				core.Step(1, Marks{Comm: id, Bucket: bucketOf(), Set: 0b1000 | marksOfKernels | MarkDirect})
			case 6:
				core.Step(1, Advised{Comm: id, Prior: []Learned{{Key: Key{Bucket: bucketOf()}, Action: rapid.SampledFrom(kernels).Draw(r, "advice")}}})
			case 7:
				for _, e := range entries[id] {
					for _, a := range append(slices.Clone(e.Trials), e.Base) {
						for rank := range int32(4) {
							core.Step(1, &Sample{Comm: id, Seq: seq, Rank: rank, Bucket: e.Bucket, Bytes: 1 << 20, Action: a, Ran: a, SignalNs: 9000 - 50*state.Ns(a.Channels), EventTimed: true})
						}
						seq++
					}
				}
			}
			for _, p := range core.Step(1, Tick{}).Plans {
				entries[p.Comm] = p.Entries
				if more := beyond(p, mostCTAs(most[p.Comm], 0)); len(more) > 0 {
					r.Fatalf("communicator %d, %d kernels: %+v", p.Comm, most[p.Comm], more)
				}
			}
		}
		for _, id := range comms { // the newest plan of each, and what may be in the next ones
			m := core.comms[id]
			m.eachBucket(func(b *bucket) {
				if !slices.Equal(b.set, setWithin(b.set, m.mostCTAs(b.Bucket), hasRails(b.Bucket, m.Shape))) {
					r.Fatalf("communicator %d, %d kernels: %s", id, most[id], names(b.set))
				}
			})
			if more := beyond(Plan{Entries: entries[id]}, mostCTAs(most[id], 0)); len(more) > 0 {
				r.Fatalf("communicator %d, %d kernels: %+v stays", id, most[id], more)
			}
		}
	})
}
