package daemon

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"dynamiccl/nccltuner"
	"dynamiccl/state"
)

// Where somebody came a short while ago directory and records are looked at in every tick, else ten times a second. A directory that is
// watched, and of which nothing is unfinished, tells itself.
func TestNewcomersAreLookedAtSoon(t *testing.T) {
	cfg := testConfig(t)
	d, _ := open(t, cfg)
	defer d.Close()
	records := false
	looks := func() bool {
		scanned, read := d.scanned, d.readRecords
		time.Sleep(time.Millisecond)
		d.turn()
		records = d.readRecords != read
		return d.scanned != scanned
	}
	// A tick that comes late on a busy machine looks because it is time to; of some there is one that does not.
	onceNot := func(what func() bool) bool {
		for range 50 {
			if !what() {
				return true
			}
		}
		return false
	}
	d.turn()
	if !onceNot(func() bool { return looks() || records }) {
		t.Error("nobody came, and the directory is looked at in every tick")
	}
	d.take(&nccltuner.Changes{})
	if d.cameNs != 0 {
		t.Error("nobody came, and it is said that somebody did")
	}
	d.cameNs = d.now()
	if !looks() || !records {
		t.Error("somebody came, and the next tick does not look")
	}
	d.watched, d.swept = true, d.now()+state.Ns(time.Hour)
	passing := filepath.Join(cfg.Dir, "passing")
	if !onceNot(func() bool {
		if err := errors.Join(os.WriteFile(passing, nil, 0o600), os.Remove(passing)); err != nil {
			t.Fatal(err)
		}
		d.scan()
		return d.scanner.Quiet()
	}) {
		t.Fatal("the directory changes all the time, and is quiet")
	}
	if !looks() || !records {
		t.Error("the directory is watched and has just changed, and the next tick does not look")
	}
	time.Sleep(150 * time.Millisecond)
	if looks(); !d.scanner.Quiet() {
		t.Fatal("the directory is not quiet")
	}
	if !onceNot(looks) || !records {
		t.Error("the directory tells itself, and every tick looks there, or not at records")
	}
	d.watched = false
	if !looks() {
		t.Error("nobody watches, and the next tick does not look")
	}
	d.cameNs -= state.Ns(freshFor)
	if !onceNot(func() bool { return looks() || records }) {
		t.Error("it is long since somebody came, and the directory is looked at in every tick")
	}
}

// A process or a communicator that a scan finds has come just now; what is there still, and what goes, has not.
func TestWhoeverIsFoundIsANewcomer(t *testing.T) {
	cfg := testConfig(t)
	d, log := open(t, cfg)
	defer d.Close()
	for _, c := range []struct {
		name  string
		parts []any
	}{
		{"ring-3-4.shm", []any{&nccltuner.ABIRing{Pid: 3, StartTime: 4, NumCells: 2}, &[2]nccltuner.ABISample{{Cell: 0}, {Cell: 1}}}},
		{"comm-0000000000000005.shm", []any{&nccltuner.ABIRecord{CommID: 5, NRanks: 2, NNodes: 1, EpochCalls: nccltuner.EpochCalls}, &[2]nccltuner.ABIRank{}}},
	} {
		d.cameNs = 0
		d.scan()
		if d.cameNs != 0 {
			t.Errorf("before %s is there somebody is said to have come", c.name)
		}
		shared(t, filepath.Join(cfg.Dir, c.name), c.parts)
		before := d.now()
		if d.scan(); d.cameNs < before || !d.fresh(d.now()) {
			t.Errorf("%s was found, and nobody is said to have come:\n%s", c.name, log)
		}
		d.cameNs = 0
		d.scan()
		if err := os.Remove(filepath.Join(cfg.Dir, c.name)); err != nil {
			t.Fatal(err)
		}
		if d.scan(); d.cameNs != 0 {
			t.Errorf("%s is there still, then goes, and somebody is said to have come", c.name)
		}
	}
}

// Ranks that wait before their program has the communicator hear that a plan is there which knows that they have joined, and that
// their kernels can be run; not while one is missing, and not before the plan is.
func TestRanksAreAnswered(t *testing.T) {
	cfg := testConfig(t)
	d, log := open(t, cfg)
	defer d.Close()
	path := filepath.Join(cfg.Dir, "comm-0000000000000005.shm")
	abi := &nccltuner.ABIRecord{CommID: 5, NRanks: 2, NNodes: 1, EpochCalls: nccltuner.EpochCalls, Joined: 1}
	ranks := &[2]nccltuner.ABIRank{}
	for i := range ranks {
		ranks[i].Pid, ranks[i].StartTime, ranks[i].Rank, ranks[i].NcclVersion = 3, 4, int32(i), 22809
	}
	shared(t, path, []any{abi, ranks})
	word := func(offset uintptr) (w uint32) {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var b [4]byte
		if _, err := f.ReadAt(b[:], int64(offset)); err != nil {
			t.Fatal(err)
		}
		return binary.NativeEndian.Uint32(b[:])
	}
	set := func(offset uintptr, w uint32) {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteAt(binary.NativeEndian.AppendUint32(nil, w), int64(offset)); err != nil {
			t.Fatal(err)
		}
	}
	memory := func(rank int) uintptr {
		return unsafe.Sizeof(*abi) + uintptr(rank)*unsafe.Sizeof(ranks[0]) + unsafe.Offsetof(ranks[0].MemoryState)
	}
	for _, step := range []struct {
		what string
		do   func()
		want uint32
	}{
		{"one of two has joined", func() {}, 0},
		{"both have", func() { set(unsafe.Offsetof(abi.Joined), 2) }, nccltuner.AnsweredRanks},
		{"one can run our kernels", func() { set(memory(0), nccltuner.MemoryBound) }, nccltuner.AnsweredRanks},
		{"both can", func() { set(memory(1), nccltuner.MemoryBound) }, nccltuner.AnsweredKernels},
	} {
		step.do()
		for range 3 {
			d.scanned, d.readRecords, d.swept = 0, 0, d.now()+state.Ns(time.Hour) // a sweep would find that no such process lives
			d.turn()
		}
		if got := word(unsafe.Offsetof(abi.Answered)); got != step.want {
			t.Errorf("%s: answered %d, want %d\n%s", step.what, got, step.want, log)
		}
		if published := word(unsafe.Offsetof(abi.Newest)) != 0; published != (step.want != 0) {
			t.Errorf("%s: a plan is there: %v", step.what, published)
		}
	}
}

// Ticks in which nothing happens are most of what a daemon does: none leaves anything to the garbage collector.
func TestQuietTurnDoesNotAllocate(t *testing.T) {
	cfg := testConfig(t)
	d, log := open(t, cfg)
	defer d.Close()
	ranks := &[2]nccltuner.ABIRank{}
	for i := range ranks {
		ranks[i].Pid, ranks[i].StartTime, ranks[i].Rank, ranks[i].NcclVersion = 3, 4, int32(i), 22809
	}
	shared(t, filepath.Join(cfg.Dir, "comm-0000000000000005.shm"), []any{&nccltuner.ABIRecord{CommID: 5, NRanks: 2, NNodes: 1, EpochCalls: nccltuner.EpochCalls, Joined: 2}, ranks})
	shared(t, filepath.Join(cfg.Dir, "ring-3-4.shm"), []any{&nccltuner.ABIRing{Pid: 3, StartTime: 4, NumCells: 2}, &[2]nccltuner.ABISample{{Cell: 0}, {Cell: 1}}})
	turn := func() {
		d.swept = d.now() + state.Ns(time.Hour) // which reads /proc, once a second
		d.readRecords, d.beaten = 0, 0
		d.turn()
	}
	for range 10 {
		turn()
	}
	time.Sleep(150 * time.Millisecond)
	turn()
	if len(d.rings) != 1 || len(d.order) != 1 || !d.comms[d.order[0]].active || !d.scanner.Quiet() {
		t.Fatalf("ring and record are not served:\n%s", log)
	}
	if n := testing.AllocsPerRun(100, turn); n != 0 {
		t.Errorf("%v allocations a tick", n)
	}
}

// shared writes a file as its creator leaves it; the first part begins with the header.
func shared(t *testing.T, path string, parts []any) {
	t.Helper()
	if err := os.WriteFile(path, sharedBytes(parts), 0o600); err != nil {
		t.Fatal(err)
	}
}

func sharedBytes(parts []any) []byte {
	size := 0
	for _, p := range parts {
		size += binary.Size(p)
	}
	header := nccltuner.ABIHeader{Version: nccltuner.ABIVersion, SizeBytes: uint64(size)}
	switch p := parts[0].(type) {
	case *nccltuner.ABIRing:
		p.Header, p.Header.Magic = header, nccltuner.RingMagic
	case *nccltuner.ABIRecord:
		p.Header, p.Header.Magic = header, nccltuner.RecordMagic
	}
	var b bytes.Buffer
	for _, p := range parts {
		_ = binary.Write(&b, binary.NativeEndian, p) // memory; what has no size would have panicked above
	}
	return b.Bytes()
}
