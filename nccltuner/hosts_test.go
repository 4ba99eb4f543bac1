package nccltuner

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// acrossRecord is that of a communicator of 6 ranks, of which those of these numbers are on this host, and have met the others.
func acrossRecord(t testing.TB, here ...int) *Record {
	t.Helper()
	r := heapRecord(t, 6)
	for i, rank := range here {
		join(r, Process{uint32(10 + i), 100})
		r.ranks[i].Rank, r.ranks[i].NcclVersion, r.ranks[i].Flags = int32(rank), 23203, RankEventTimed
	}
	r.abi.HostRanks, r.abi.Hosts = uint32(len(here)), HostsMet
	r.ranks[len(here)].NcclVersion, r.ranks[len(here)].Flags = 23203, RankEventTimed
	return r
}

func viewOf(t testing.TB, r *Record) RecordView {
	t.Helper()
	var v RecordView
	if err := r.View(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestViewOfSeveralHosts(t *testing.T) {
	r := acrossRecord(t, 2, 0, 5)
	r.abi.Newest, r.abi.Proposed, r.abi.Refusal, r.abi.Refuser = 9<<8|3, 9, RefusedBusy, 4
	r.ranks[0].Agreed, r.ranks[1].Agreed, r.ranks[2].Agreed = 7, 8, 7
	others := &r.ranks[3]
	others.Flags = RankNoTimes | RankNoExplore | RankAloneGathers
	v := viewOf(t, r)
	heard, told := v.Heard()
	if !v.Several() || !v.Leads() || !r.Complete(&v) || v.HostRanks != 3 || v.Reporters() != 4 || len(v.Ranks) != 3 || heard != 1<<2|1<<0|1<<5 || !told {
		t.Errorf("%+v, heard %b", v, heard)
	}
	if v.Agreed() != 8 || v.Ranks[1].Version != 8 || v.Ranks[2].Version != 7 || v.Proposed != 9 {
		t.Errorf("plans %+v", v)
	}
	if !v.OthersTold {
		t.Error("the others have told")
	}
	if want := (RankView{Rank: -1, NCCLVersion: 23203, NoTimes: true, NoExplore: true, AloneGathers: true}); v.Others != want {
		t.Errorf("the others say %+v, want %+v", v.Others, want)
	}
	if !v.Any(func(k *RankView) bool { return k.NoTimes }) || v.Any(func(k *RankView) bool { return k.Fixed }) || v.Veto {
		t.Error("one rank's word binds all, on whatever host it is")
	}
	if got := v.Refused(); got != "plan 9 is not in force: of rank 4, it has not begun the plan before" {
		t.Error(got)
	}
	if n := testing.AllocsPerRun(100, func() { _ = r.View(&v) }); n != 0 {
		t.Errorf("%v allocations a view", n)
	}
	others.Flags, others.NcclVersion = 0, 0
	if v = viewOf(t, r); v.OthersTold {
		t.Error("the others have told nothing")
	}
	others.Flags = RankVeto // and of NCCL they have several
	if v = viewOf(t, r); !v.OthersTold {
		t.Error("the others have told")
	}
	if v = viewOf(t, r); !v.Veto {
		t.Error("the veto of a rank on another host is not seen")
	}
	r.abi.Hosts = HostsParted
	if v = viewOf(t, r); !v.Several() || !r.Complete(&v) || v.Agreed() != 8 {
		t.Errorf("parted: %+v", v)
	}

	r = acrossRecord(t, 3, 4) // whose host follows: nothing is published here, and nobody fills the slot behind
	r.ranks[0].Agreed, r.ranks[2].Flags = 8, RankVeto|RankNoTimes
	if v = viewOf(t, r); v.Leads() || v.Agreed() != 8 || v.Others != (RankView{}) || v.Veto || v.Any(func(k *RankView) bool { return k.NoTimes }) {
		t.Errorf("a host without rank 0: %+v", v)
	}
	r.ranks[1].Rank = 3
	if v = viewOf(t, r); v.Leads() {
		t.Error("it leads")
	} else if _, told := v.Heard(); told {
		t.Error("two ranks of one number")
	}
	r.ranks[1].Rank = -1
	v = viewOf(t, r)
	if _, told := v.Heard(); told {
		t.Error("a rank that does not know its number")
	}
	for _, hosts := range []uint32{HostsOne, HostsApart} {
		r = acrossRecord(t, 0, 1)
		r.abi.Hosts, r.ranks[0].Agreed = hosts, 5
		if v = viewOf(t, r); v.Several() || r.Complete(&v) || v.HostRanks != 6 || v.Ranks[0].Version != 0 {
			t.Errorf("state %d: %+v", hosts, v)
		}
		for rank := 2; rank < 6; rank++ {
			join(r, Process{uint32(10 + rank), 100})
		}
		if v = viewOf(t, r); !r.Complete(&v) || v.Reporters() != 6 {
			t.Errorf("state %d, and all ranks are here: %+v", hosts, v)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		newest, proposed, agreed uint64
		refusal, refuser         uint32
		want                     string
	}{
		{4, 4, 3, RefusedNot, 0, ""},
		{5, 4, 3, RefusedLate, 0, ""}, // the next one is on its way
		{4, 4, 4, RefusedLate, 0, ""},
		{0, 0, 0, RefusedLate, 0, ""},
		{4, 4, 3, RefusedLate, 5, "rank 5, it had passed"},
		{4, 4, 3, RefusedUnfit, 5, "failed its check"},
		{4, 4, 3, RefusedMarks, 5, "NCCL does not allow"},
		{4, 4, 3, RefusedUser, 5, "its user"},
		{4, 4, 3, RefusedSilent, 6, "of a rank, it did not answer, or has gone"},
		{4, 4, 3, RefusedApart, 5, "rank 5, it counts AllToAll"},
		{4, 4, 3, RefusedApart + 1, 5, "does not know"},
		{4, 4, 3, 1 << 31, 1 << 31, "does not know"},
	} {
		r := acrossRecord(t, 0, 1)
		if c.newest != 0 {
			r.abi.Newest = c.newest<<8 | 1
		}
		r.abi.Proposed, r.abi.Refusal, r.abi.Refuser, r.ranks[1].Agreed = c.proposed, c.refusal, c.refuser, c.agreed
		if v := viewOf(t, r); (v.Refused() == "") != (c.want == "") || !strings.Contains(v.Refused(), c.want) {
			t.Errorf("%+v: %q", c, v.Refused())
		}
	}
}

func TestGarbageOfSeveralHosts(t *testing.T) {
	for name, damage := range map[string]func(r *Record){
		"state":     func(r *Record) { r.abi.Hosts = HostsParted + 1 },
		"no ranks":  func(r *Record) { r.abi.HostRanks = 0 },
		"all ranks": func(r *Record) { r.abi.HostRanks = 6 },
		"all, who are here": func(r *Record) {
			for r.abi.HostRanks = 6; r.abi.Joined < 6; {
				join(r, Process{9, 9})
			}
		},
		"more than all":         func(r *Record) { r.abi.HostRanks = 1 << 31 },
		"not those that joined": func(r *Record) { r.abi.HostRanks = 2 },
		"one has joined since":  func(r *Record) { join(r, Process{9, 9}) },
		"of this host alone":    func(r *Record) { r.ranks[2].Position = 3<<8 | 1 },
		"agreed":                func(r *Record) { r.ranks[2].Agreed = 10 },
		"proposed":              func(r *Record) { r.abi.Proposed = 10 },
	} {
		for _, state := range []uint32{HostsMet, HostsParted} {
			r := acrossRecord(t, 0, 1, 2)
			r.abi.Newest, r.abi.Hosts = 9<<8|1, state
			_ = viewOf(t, r)
			damage(r)
			var v RecordView
			if err := r.View(&v); !errors.Is(err, ErrGarbage) {
				t.Errorf("%s: %v", name, err)
			}
			var marks MarkTable
			if err := r.Marks(&marks); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// All ranks on other hosts are one that reports; what slots behind theirs hold is nobody's.
func TestMarksOfSeveralHosts(t *testing.T) {
	r := acrossRecord(t, 0, 1, 2)
	at := state.Bucket{Collective: actions.AllGather, Log2Bytes: 12}
	for _, c := range []struct {
		name string
		last uint32 // of the others
		want BucketMarks
	}{
		{"not yet", 7, BucketMarks{Set: 6, Seen: 3}},
		{"the same", markSeen | 6, BucketMarks{Set: 6, Seen: 4}},
		{"other ones", markSeen | 4, BucketMarks{Set: 4, Seen: 4, Differ: true}},
		{"they differ", markSeen, BucketMarks{Seen: 4, Differ: true}},
	} {
		for i := range r.ranks {
			r.ranks[i].Marks[at.Collective][at.Log2Bytes] = markSeen | 6
		}
		r.ranks[3].Marks[at.Collective][at.Log2Bytes] = c.last
		var table MarkTable
		if err := r.Marks(&table); err != nil || table.Of(at) != c.want {
			t.Errorf("%s: %+v, want %+v, %v", c.name, table.Of(at), c.want, err)
		}
	}
	if moved, err := r.NewMarks(); !moved || err != nil {
		t.Fatal(moved, err)
	}
	r.ranks[3].Marks[at.Collective][at.Log2Bytes] = markSeen | 6
	if moved, err := r.NewMarks(); !moved || err != nil {
		t.Errorf("the others' marks are new, and it is not seen: %v", err)
	}
}

// Ranks that never take a plan from this record have its buffers come free as their calls go on, and not before.
func TestPublishingForSeveralHosts(t *testing.T) {
	r := acrossRecord(t, 0, 1)
	p, err := NewPublisher(r)
	if err != nil {
		t.Fatal(err)
	}
	var stuck []int
	for i := range 40 {
		if _, err := p.Publish(&PlanSpec{}); errors.Is(err, ErrNoFreeBuffer) {
			stuck = append(stuck, i)
		} else if err != nil {
			t.Fatal(err)
		}
		if i >= 20 {
			r.abi.Frontier += 1 << 8
			r.ranks[0].Position, r.ranks[1].Position = r.abi.Frontier>>8<<8, 0
		}
	}
	if len(stuck) == 0 || slices.Max(stuck) > 20 || slices.Min(stuck) != NumPlans {
		t.Errorf("no buffer was free for plans %v, want from %d to 20", stuck, NumPlans)
	}
}
