package daemon

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/nccltuner"
	"dynamiccl/state"
)

// across is the record of communicator 5, of 6 ranks, of which some are on this host; marks are of AllReduce of 1 MiB.
type across struct {
	t     *testing.T
	d     *Daemon
	log   *logBuffer
	path  string
	abi   nccltuner.ABIRecord
	ranks [6]nccltuner.ABIRank
}

const (
	acrossColl = actions.AllReduce
	acrossLog2 = 20
	acrossSeen = 1<<31 | 0b111_111
)

func newAcross(t *testing.T, here ...int32) *across {
	cfg := testConfig(t)
	d, log := open(t, cfg)
	t.Cleanup(func() { _ = d.Close() })
	a := &across{t: t, d: d, log: log, path: filepath.Join(cfg.Dir, "comm-0000000000000005.shm")}
	a.abi = nccltuner.ABIRecord{CommID: 5, NRanks: 6, NNodes: 3, EpochCalls: nccltuner.EpochCalls, Joined: uint32(len(here)), HostRanks: uint32(len(here)), Hosts: nccltuner.HostsMet}
	for i := range len(here) + 1 {
		r := &a.ranks[i]
		r.NcclVersion, r.Flags = 23203, nccltuner.RankEventTimed
		r.Marks[acrossColl][acrossLog2] = acrossSeen
		if i < len(here) {
			r.Pid, r.StartTime, r.Rank, r.Calls, r.Transport = 3, 4, here[i], 32, nccltuner.TransportSocket
		}
	}
	shared(t, a.path, []any{&a.abi, &a.ranks})
	return a
}

// look has the daemon see the record as it is now.
func (a *across) look() control.CommStatus {
	a.t.Helper()
	for range 3 {
		a.d.scanned, a.d.readRecords, a.d.swept = 0, 0, a.d.now() // a sweep would find that no such process lives
		a.d.turn()
	}
	var s control.Status
	var err error
	<-a.d.busy
	defer func() { a.d.busy <- struct{}{} }()
	if s, err = a.d.Status(context.Background()); err != nil || len(s.Comms) != 1 {
		a.t.Fatalf("%+v, %v\n%s", s.Comms, err, a.log)
	}
	return s.Comms[0]
}

func (a *across) write(offset uintptr, b []byte) {
	a.t.Helper()
	f, err := os.OpenFile(a.path, os.O_RDWR, 0)
	if err != nil {
		a.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, int64(offset)); err != nil {
		a.t.Fatal(err)
	}
}

func (a *across) word(offset uintptr, w uint32) {
	a.write(offset, binary.NativeEndian.AppendUint32(nil, w))
}

func (a *across) long(offset uintptr, w uint64) {
	a.write(offset, binary.NativeEndian.AppendUint64(nil, w))
}

func (a *across) rank(i int, offset uintptr) uintptr {
	return unsafe.Sizeof(a.abi) + uintptr(i)*unsafe.Sizeof(a.ranks[0]) + offset
}

func (a *across) hosts(state uint32) { a.word(unsafe.Offsetof(a.abi.Hosts), state) }

func (a *across) agreed(i int, version uint64) {
	a.long(a.rank(i, unsafe.Offsetof(a.ranks[0].Agreed)), version)
}

func (a *across) marks(i int, c actions.Collective, log2 int, w uint32) {
	a.word(a.rank(i, unsafe.Offsetof(a.ranks[0].Marks))+uintptr(int(c)*nccltuner.NumBuckets+log2)*4, w)
}

func says(t *testing.T, c control.CommStatus, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(c.Why, w) {
			t.Errorf("says %q, want %q", c.Why, w)
		}
	}
}

// The daemon of rank 0's host plans for all ranks, once these have met.
func TestHostOfRank0Leads(t *testing.T) {
	a := newAcross(t, 4, 0)
	a.hosts(nccltuner.HostsApart)
	c := a.look()
	if c.Active || c.Follows || c.PlanVersion != 0 || c.Hosts != "apart" || c.RanksJoined != 2 || c.Ranks != 6 {
		t.Errorf("apart: %+v", c)
	}
	says(t, c, "2 of 6 ranks have joined on this host", "once the others have, here, or on hosts", "under `dynamiccld run`")

	// Another rank of this host says that they have met before rank 0 has heard what the others allow.
	a.word(a.rank(2, unsafe.Offsetof(a.ranks[0].Flags)), 0)
	a.word(a.rank(2, unsafe.Offsetof(a.ranks[0].NcclVersion)), 0)
	a.hosts(nccltuner.HostsMet)
	c = a.look()
	says(t, c, "have not said yet what they allow")
	a.word(a.rank(2, unsafe.Offsetof(a.ranks[0].NcclVersion)), 23203)
	a.d.readRecord(a.d.comms[5])
	if a.d.comms[5].active {
		t.Error("what the others say was read while it was written")
	}
	a.word(a.rank(2, unsafe.Offsetof(a.ranks[0].Flags)), nccltuner.RankEventTimed)
	c = a.look()
	if !a.d.comms[5].eventTimed() {
		t.Error("the others' calls are timed")
	}
	if !c.Active || c.Follows || c.Why != "" || c.Hosts != "met" || c.PlanVersion == 0 || c.PlanAgreed != 0 || c.Transport != "socket" || c.Ranks != 6 || c.NCCLVersion != "2.32.3" {
		t.Errorf("met: %+v\n%s", c, a.log)
	}
	// What `import --store` files rules under.
	if said := a.log.String(); !strings.Contains(said, "machine=\""+a.d.comms[5].machine(a.d.cfg.Machine)+"\" gpu_arch=") || !strings.Contains(said, " nccl=2.32.3 ") {
		t.Errorf("the log does not say what choices are stored under: %s", said)
	}
	bucket := func() string {
		for _, v := range a.d.core.Buckets() {
			if v.Bucket == (state.Bucket{Collective: acrossColl, Log2Bytes: acrossLog2}) {
				return v.Note + "."
			}
		}
		return "none"
	}
	if bucket() != "." || a.d.core.Buckets()[0].Shape != (state.Shape{Ranks: 6, Nodes: 3, Transport: "socket"}) {
		t.Errorf("%+v", a.d.core.Buckets())
	}
	if !a.d.exploring() {
		t.Error("nothing is tried")
	}
	// The core hears of what the two ranks tell, and those of other hosts behind them.
	everybody := []int32{0, 4, 1, 2, 3, 5}
	told := func() uint64 {
		for _, rank := range everybody {
			a.d.sample(&nccltuner.Sample{CommID: 5, Seq: 40, Rank: rank, Bucket: state.Bucket{Collective: acrossColl, Log2Bytes: acrossLog2}, Bytes: 1 << 20,
				SignalNs: 50_000, CounterNs: 50_000, EventTimed: true})
		}
		return a.d.core.Totals().Groups
	}
	if n := told(); n != 1 {
		t.Errorf("%d calls that all ranks told of", n)
	}

	a.long(unsafe.Offsetof(a.abi.Proposed), c.PlanVersion)
	a.word(unsafe.Offsetof(a.abi.Refuser), 5)
	a.word(unsafe.Offsetof(a.abi.Refusal), nccltuner.RefusedBusy)
	if c = a.look(); !c.Active {
		t.Errorf("refused: %+v", c)
	}
	says(t, c, "not in force: of rank 5, it has not begun the plan before")
	// Trials of a plan that is not in force are waited for, however many calls pass; of one that is they are lost at some time.
	pass := func(seq uint64) {
		for _, rank := range everybody {
			a.d.sample(&nccltuner.Sample{CommID: 5, Seq: seq, Rank: rank, Bucket: state.Bucket{Collective: acrossColl, Log2Bytes: 4}, Bytes: 1 << 4, SignalNs: 9000, EventTimed: true})
		}
	}
	pass(100_000)
	if now := a.look().PlanVersion; now != c.PlanVersion {
		t.Errorf("plan %d after %d, which nobody has agreed on", now, c.PlanVersion)
	}
	a.agreed(1, c.PlanVersion)
	if a.look(); a.d.comms[5].view.Agreed() != c.PlanVersion {
		t.Fatal("not agreed")
	}
	pass(200_000)
	lost := a.look()
	if lost.PlanVersion == c.PlanVersion {
		t.Error("trials that are in force are waited for for ever")
	}
	c = lost
	a.agreed(0, c.PlanVersion)
	if c = a.look(); c.Why != "" || c.PlanAgreed != c.PlanVersion || a.d.comms[5].hosts.agreed != c.PlanVersion {
		t.Errorf("agreed: %+v", c)
	}

	a.marks(2, acrossColl, acrossLog2, 1<<31) // of the others, which differ
	if c = a.look(); !strings.Contains(bucket(), "ranks differ") {
		t.Errorf("the others differ in what they allow, and the size is %q", bucket())
	}
	a.marks(2, acrossColl, acrossLog2, acrossSeen)
	if a.look(); !a.d.exploring() {
		t.Error("the others do not differ any more, and nothing is tried")
	}
	a.hosts(nccltuner.HostsParted)
	c = a.look()
	if !c.Active || c.Follows || c.Hosts != "parted" || a.d.exploring() || !strings.Contains(bucket(), "lost each other") {
		t.Errorf("parted: %+v, size %q", c, bucket())
	}
	says(t, c, "lost each other", "is in force for good")
	before := c.PlanVersion
	a.marks(0, actions.AllGather, 20, acrossSeen)
	a.marks(1, actions.AllGather, 20, acrossSeen)
	a.marks(2, actions.AllGather, 20, acrossSeen)
	if c = a.look(); c.PlanVersion != before {
		t.Errorf("plan %d after %d, and nobody can agree on it", c.PlanVersion, before)
	}
	a.long(a.rank(0, unsafe.Offsetof(a.ranks[0].Position)), ^uint64(0))
	a.long(a.rank(1, unsafe.Offsetof(a.ranks[0].Position)), ^uint64(0))
	if c = a.look(); c.Why != "" {
		t.Errorf("all ranks have left, and it is said %q", c.Why)
	}
	if err := os.Remove(a.path); err != nil {
		t.Fatal(err)
	}
	a.d.scanned = 0
	if a.d.turn(); len(a.d.order) != 0 {
		t.Error("it is gone, and is served")
	}
}

// A size of which the others have not told yet is left alone, though all ranks of this host have.
func TestOthersMarksAreWaitedFor(t *testing.T) {
	a := newAcross(t, 0, 1, 2)
	a.marks(3, acrossColl, acrossLog2, 0)
	if a.look(); len(a.d.core.Buckets()) != 0 {
		t.Fatalf("%+v", a.d.core.Buckets())
	}
	a.marks(3, acrossColl, acrossLog2, acrossSeen) // and no rank of this host makes a call meanwhile
	if a.look(); len(a.d.core.Buckets()) != 1 {
		t.Errorf("the others have told, and it is not seen:\n%s", a.log)
	}
}

// A rank of any host may have what binds all.
func TestOthersFlagsBind(t *testing.T) {
	for _, c := range []struct {
		what    string
		flags   uint32
		version uint32
		tried   bool
		event   bool
		fixed   bool
		known   bool
	}{
		{"nothing", nccltuner.RankEventTimed, 23203, true, true, false, true},
		{"no exploration", nccltuner.RankEventTimed | nccltuner.RankNoExplore, 23203, false, true, false, true},
		{"no times", nccltuner.RankEventTimed | nccltuner.RankNoTimes, 23203, false, true, false, true},
		{"no profiler", nccltuner.RankEventTimed | nccltuner.RankNoProfiler, 23203, false, true, false, true},
		{"no events", 0, 23203, true, false, false, true},
		{"fixed numerics", nccltuner.RankEventTimed | nccltuner.RankFixedNumerics, 23203, true, true, true, true},
		{"another NCCL", nccltuner.RankEventTimed, 23202, true, true, false, false},
	} {
		a := newAcross(t, 0, 1)
		a.word(a.rank(2, unsafe.Offsetof(a.ranks[0].Flags)), c.flags)
		a.word(a.rank(2, unsafe.Offsetof(a.ranks[0].NcclVersion)), c.version)
		s := a.look()
		m := a.d.comms[5]
		if !s.Active || a.d.exploring() != c.tried || m.eventTimed() != c.event || m.fixedNumerics() != c.fixed || (s.NCCLVersion != "") != c.known {
			t.Errorf("%s: exploring %v, events %v, fixed %v, NCCL %q, %+v", c.what, a.d.exploring(), m.eventTimed(), m.fixedNumerics(), s.NCCLVersion, s)
		}
	}
	a := newAcross(t, 0, 1)
	a.word(a.rank(2, unsafe.Offsetof(a.ranks[0].Flags)), nccltuner.RankVeto)
	if s := a.look(); s.Active || !strings.Contains(s.Why, "NCCL_ALGO") {
		t.Errorf("veto: %+v", s)
	}
}

// An AllGather has numbers of channels where every rank of every host can tell it from broadcasts of a group.
func TestGathersOnSeveralHosts(t *testing.T) {
	const knows = nccltuner.RankEventTimed | nccltuner.RankAloneGathers
	for flags, own := range map[[3]uint32]bool{
		{knows, knows, knows}:                    false,
		{knows, nccltuner.RankEventTimed, knows}: true,
		{knows, knows, nccltuner.RankEventTimed}: true, // of the others
	} {
		a := newAcross(t, 0, 1)
		for i, f := range flags {
			a.word(a.rank(i, unsafe.Offsetof(a.ranks[0].Flags)), f)
		}
		if s := a.look(); !s.Active || a.d.comms[5].ownGathers() != own {
			t.Errorf("flags %v: its own number %v, %+v", flags, !own, s)
		}
	}
}

// Where rank 0 is elsewhere its host's daemon plans, and this one shows what was agreed.
func TestHostWithoutRank0Follows(t *testing.T) {
	a := newAcross(t, 3, 5)
	c := a.look()
	if c.Active || !c.Follows || c.PlanVersion != 0 || len(a.d.core.Buckets()) != 0 {
		t.Errorf("%+v", c)
	}
	says(t, c, "the daemon of rank 0's host tunes it: no plan is in force yet")
	a.d.sample(&nccltuner.Sample{CommID: 5, Seq: 40, Rank: 3, Bucket: state.Bucket{Collective: acrossColl, Log2Bytes: acrossLog2}, Bytes: 1 << 20, SignalNs: 50_000, EventTimed: true})
	if n := a.d.core.Totals().Unknown; n != 0 {
		t.Errorf("%d samples of nobody's", n)
	}
	a.agreed(1, 7) // of which nothing is published here
	if c = a.look(); c.Active || !c.Follows || c.PlanVersion != 7 || c.PlanAgreed != 7 {
		t.Errorf("%+v", c)
	}
	says(t, c, "plan 7 is in force")
	a.hosts(nccltuner.HostsParted)
	if c = a.look(); c.Active || !c.Follows || c.Hosts != "parted" {
		t.Errorf("%+v", c)
	}
	says(t, c, "plan 7 is in force for good")
}

// What cannot be is said, and its ranks keep what they have.
func TestGarbageOfSeveralHosts(t *testing.T) {
	for what, damage := range map[string]func(a *across){
		"state":     func(a *across) { a.hosts(77) },
		"all ranks": func(a *across) { a.word(unsafe.Offsetof(a.abi.HostRanks), 6) },
		"joined":    func(a *across) { a.word(unsafe.Offsetof(a.abi.Joined), 3) },
		"agreed":    func(a *across) { a.agreed(0, 1<<40) },
	} {
		for _, early := range []bool{false, true} {
			a := newAcross(t, 0, 1)
			if !early {
				a.look()
			}
			damage(a)
			if c := a.look(); c.Active || !strings.Contains(c.Why, "comm-0000000000000005.shm") || !strings.Contains(a.log.String(), "left alone") {
				t.Errorf("%s, early %v: %+v\n%s", what, early, c, a.log)
			}
		}
	}
	for what, rank := range map[string]uint32{"unknown": ^uint32(0), "twice": 0, "too many": 64} {
		a := newAcross(t, 0, 1)
		a.word(a.rank(1, unsafe.Offsetof(a.ranks[0].Rank)), rank)
		if c := a.look(); c.Active || !strings.Contains(c.Why, "do not say which") {
			t.Errorf("%s: %+v", what, c)
		}
	}
}
