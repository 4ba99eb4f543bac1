package nccltuner

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestOpenRecord(t *testing.T) {
	d := openTestDir(t)
	data := newRecordBytes(0xabc, 3)
	binary.NativeEndian.PutUint32(data[headerSize+12:], 2)
	binary.NativeEndian.PutUint32(data[headerSize+20:], 32)
	putFile(t, d, recordName(0xabc), data)
	r, err := d.OpenRecord(0xabc)
	if err != nil {
		t.Fatal(err)
	}
	if want := (RecordInfo{CommID: 0xabc, NRanks: 3, NNodes: 2, EpochCalls: 16, MaxChannels: 32}); r.Info() != want {
		t.Errorf("got %+v, want %+v", r.Info(), want)
	}
	for range 3 {
		if err := r.Beat(); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	var v RecordView
	if err := r.View(&v); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
	// What the daemon wrote is in the file: another mapping sees it.
	again, err := d.OpenRecord(0xabc)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if again.abi.Header.Heartbeat != 3 {
		t.Errorf("heartbeat %d after 3 beats", again.abi.Header.Heartbeat)
	}
}

// corruption is one way in which a file can be bad.
type corruption struct {
	name string
	spot int64 // offset of a 32-bit word to overwrite; -1: none
	word uint32
	size int64 // to truncate or extend to; -1: as it is
	want error
}

var recordCorruptions = []corruption{
	{"empty", -1, 0, 0, ErrNotReady},
	{"no header", -1, 0, 31, ErrTorn},
	{"header alone", -1, 0, headerSize, ErrTorn},
	{"no magic yet", 0, 0, -1, ErrGarbage}, // only half of the magic: never written so
	{"wrong magic", 0, 7, -1, ErrGarbage},
	{"next version", 8, ABIVersion + 1, -1, ErrVersion},
	{"version 0", 8, 0, -1, ErrVersion},
	{"one byte short", -1, 0, recordSize + 3*rankSize - 1, ErrTorn},
	{"half", -1, 0, recordSize / 2, ErrTorn},
	{"one byte more", -1, 0, recordSize + 3*rankSize + 1, ErrGarbage},
	{"huge", -1, 0, 1 << 40, ErrGarbage},
	{"states less", 16, 64, -1, ErrGarbage},
	{"states more", 16, 1 << 20, -1, ErrTorn},
	{"another communicator", headerSize, 6, -1, ErrGarbage},
	{"no ranks", headerSize + 8, 0, -1, ErrGarbage},
	{"too many ranks", headerSize + 8, MaxRanks + 1, -1, ErrGarbage},
	{"fewer ranks than bytes", headerSize + 8, 2, -1, ErrGarbage},
	{"more ranks than bytes", headerSize + 8, 4, -1, ErrGarbage},
	{"no nodes", headerSize + 12, 0, -1, ErrGarbage},
	{"more nodes than ranks", headerSize + 12, 4, -1, ErrGarbage},
	{"no calls in an epoch", headerSize + 16, 0, -1, ErrGarbage},
	{"endless epochs", headerSize + 16, 1 << 31, -1, ErrGarbage},
	{"many channels", headerSize + 20, 256, -1, ErrGarbage},
}

// spoil writes a bad copy of a good file.
func spoil(t *testing.T, d *Dir, name string, good []byte, c corruption) {
	t.Helper()
	data := append([]byte(nil), good...)
	if c.spot >= 0 {
		binary.NativeEndian.PutUint32(data[c.spot:], c.word)
	}
	path := putFile(t, d, name, data)
	if c.size >= 0 {
		if err := os.Truncate(path, c.size); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOpenRecordRefuses(t *testing.T) {
	d := openTestDir(t)
	for _, c := range recordCorruptions {
		spoil(t, d, recordName(5), newRecordBytes(5, 3), c)
		r, err := d.OpenRecord(5)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
		if err != nil && !strings.Contains(err.Error(), recordName(5)) {
			t.Errorf("%s: %q does not name the file", c.name, err)
		}
		if r != nil {
			t.Errorf("%s: opened", c.name)
		}
	}
	putFile(t, d, recordName(5), make([]byte, recordSize+rankSize)) // reserved, magic not yet written
	if _, err := d.OpenRecord(5); !errors.Is(err, ErrNotReady) {
		t.Errorf("file of zeros: got %v", err)
	}
}

func TestOpenRefusesWhatIsNoFile(t *testing.T) {
	d := openTestDir(t)
	for id, make := range []func(path string) error{
		func(path string) error { return os.Mkdir(path, 0o700) },
		func(path string) error { return syscall.Mkfifo(path, 0o600) },
		func(path string) error {
			target := putFile(t, d, "target", newRecordBytes(2, 1))
			return os.Symlink(target, path)
		},
	} {
		if err := make(filepath.Join(d.Path(), recordName(uint64(id)))); err != nil {
			t.Fatal(err)
		}
		if _, err := d.OpenRecord(uint64(id)); !errors.Is(err, ErrForeign) {
			t.Errorf("kind %d: got %v", id, err)
		}
	}
	if _, err := d.OpenRecord(99); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: got %v", err)
	}
	putFile(t, d, recordName(7), newRecordBytes(7, 1))
	if _, err := mapFile(d.fd, recordName(7), d.uid+1, 1<<20); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "belongs to user") {
		t.Errorf("another user's file: got %v", err)
	}
}

// A file truncated under the daemon's feet is an error at every door, and never a crash.
func TestRecordTruncatedInUse(t *testing.T) {
	d := openTestDir(t)
	path := putFile(t, d, recordName(5), newRecordBytes(5, 3))
	r, err := d.OpenRecord(5)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p, err := NewPublisher(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	var v RecordView
	var marks MarkTable
	_, publishErr := p.Publish(&PlanSpec{})
	_, publisherErr := NewPublisher(r)
	for name, err := range map[string]error{
		"View": r.View(&v), "Marks": r.Marks(&marks), "Beat": r.Beat(), "Publish": publishErr, "NewPublisher": publisherErr,
	} {
		if !errors.Is(err, ErrTorn) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// A fault outside the mapping is our own bug and must not pass for a torn file.
func TestGuardHidesNoBugs(t *testing.T) {
	m := heapMapping("m", make([]byte, 64))
	defer func() {
		if recover() == nil {
			t.Error("a nil dereference came out as an error or as nothing")
		}
	}()
	var nothing *ABIRecord
	err := m.guard(func() { nothing.NRanks++ })
	t.Errorf("went on with %v", err)
}

func TestRecordView(t *testing.T) {
	r := heapRecord(t, 3)
	var v RecordView
	view := func() {
		t.Helper()
		if err := r.View(&v); err != nil {
			t.Fatal(err)
		}
	}
	view()
	if v.Joined != 0 || len(v.Ranks) != 0 || r.Complete(&v) {
		t.Errorf("new record: %+v", v)
	}
	join(r, Process{10, 100})
	join(r, Process{11, 101})
	r.ranks[0].Position = 7<<8 | 3
	r.ranks[0].Calls, r.ranks[0].Ignored, r.ranks[0].NcclVersion = 112, 2, 22809
	r.ranks[1].Position, r.ranks[1].Flags, r.ranks[1].Rank = positionLeft, RankVeto|RankNoProfiler|RankPlanUnfit|RankNoExplore|RankFixedNumerics|RankDeviceLl|RankNoTimes|RankEventTimed|7<<RankCtasShift, -1
	r.ranks[1].Run = 7
	r.ranks[0].Transport, r.ranks[0].Nics = TransportRdma, 4
	r.ranks[0].Gpu, r.ranks[0].Multiprocessors, r.ranks[0].MemoryState = [16]byte{15: 3}, 1<<31, MemoryRefused
	r.ranks[1].Gpu = [16]byte{15: 4}                               // which may still be written
	r.ranks[1].Transport, r.ranks[1].Nics = TransportRdma+1, 1<<31 // a newer rank's word, and nonsense
	r.abi.Plans[2].Version = 43
	r.abi.Veto, r.abi.Newest, r.abi.Frontier = 1, 44<<8|3, 9<<8|2
	view()
	want := []RankView{
		{Process: Process{10, 100}, Epoch: 7, Slot: 3, Version: 43, NCCLVersion: 22809, Calls: 112, Ignored: 2, GPU: GPU{[16]byte{15: 3}, maxMultiprocessors}, Transport: "rdma", NICs: 4},
		{Process: Process{11, 101}, Rank: -1, Left: true, Veto: true, NoProfiler: true, NoTimes: true, EventTimed: true, PlanUnfit: true, NoExplore: true, Fixed: true, DeviceLL: true, MaxCTAs: 7, Run: 7, NICs: maxNICs},
	}
	if len(v.Ranks) != 2 || v.Ranks[0] != want[0] || v.Ranks[1] != want[1] {
		t.Errorf("got %+v, want %+v", v.Ranks, want)
	}
	if v.Joined != 2 || !v.Veto || v.NewestVersion != 44 || v.Epoch != 9 || r.Complete(&v) {
		t.Errorf("got %+v", v)
	}
	join(r, Process{12, 102})
	if view(); !r.Complete(&v) {
		t.Error("3 of 3 joined and not complete")
	}
	if n := testing.AllocsPerRun(100, view); n != 0 {
		t.Errorf("%v allocations a view", n)
	}
	for name, damage := range map[string]func(){
		"joined":   func() { r.abi.Joined = 4 },
		"position": func() { r.ranks[1].Position = 1<<8 | NumPlans + 1 },
		"pid":      func() { r.ranks[1].Pid = 0 },
		"start":    func() { r.ranks[1].StartTime = 0 },
		"rank":     func() { r.ranks[1].Rank = -2 },
	} {
		saved := append([]byte(nil), r.memory.data...)
		damage()
		if err := r.View(&v); !errors.Is(err, ErrGarbage) {
			t.Errorf("%s: got %v", name, err)
		}
		if len(v.Ranks) != 3 || !r.Complete(&v) || v.Epoch != 9 || v.Ranks[0].Calls != 112 { // totals must not fall
			t.Errorf("%s: the view before is gone: %+v", name, v)
		}
		copy(r.memory.data, saved)
	}
}

func TestTransportName(t *testing.T) {
	for word, want := range []string{TransportUnknown: "", TransportNvlink: "nvlink", TransportPcie: "pcie", TransportSocket: "socket", TransportRdma: "rdma", TransportRdma + 1: ""} {
		if got := transportName(uint32(word)); got != want {
			t.Errorf("%d is %q, want %q", word, got, want)
		}
	}
}

func TestGone(t *testing.T) {
	v := RecordView{Ranks: []RankView{
		{Process: Process{1, 1}}, {Process: Process{2, 1}, Left: true}, {Process: Process{3, 1}}, {Process: Process{4, 1}},
	}}
	unknown := errors.New("too many open files")
	left, dead, err := v.Gone(func(p Process) (bool, error) {
		switch p.PID {
		case 1:
			return true, nil
		case 3:
			return false, nil
		}
		return false, unknown
	})
	if left != 1 || dead != 1 || !errors.Is(err, unknown) {
		t.Errorf("left %d, dead %d, %v; the one that nobody knows about must count as running", left, dead, err)
	}
}

// Whatever stands in a file of any length, opening and reading it ends in values or a sentinel error.
func FuzzRecord(f *testing.F) {
	good := newRecordBytes(5, 2)
	f.Add(good[:headerSize+64], uint32(len(good)))
	f.Add(good[:recordSize], uint32(len(good)))
	f.Add(good[:headerSize], uint32(headerSize))
	f.Add([]byte{}, uint32(0))
	busy := newRecordBytes(5, 1)
	copy(busy[headerSize+32:], []byte{1, 0, 0, 0, 1})
	f.Add(busy, uint32(len(busy)))
	for _, r := range []*Record{acrossRecord(f, 0), acrossRecord(f, 0, 2), acrossRecord(f, 3, 1)} {
		r.abi.Newest, r.abi.Proposed, r.abi.Refusal, r.ranks[0].Agreed = 2<<8|1, 2, RefusedMarks, 1
		f.Add(slices.Clone(r.memory.data), uint32(len(r.memory.data)))
		r.abi.Hosts = HostsParted
		f.Add(slices.Clone(r.memory.data), uint32(len(r.memory.data)))
	}
	f.Fuzz(func(t *testing.T, start []byte, size uint32) {
		if size > uint32(recordSize+6*rankSize) || len(start) > int(size) {
			return
		}
		data := make([]byte, size)
		copy(data, start)
		if len(data) == 0 {
			return // mapFile refuses an empty file before there is anything to decode
		}
		r, err := newRecord(heapMapping("fuzz", data), 5)
		if err != nil {
			if !errors.Is(err, ErrNotReady) && !errors.Is(err, ErrGarbage) && !errors.Is(err, ErrVersion) && !errors.Is(err, ErrTorn) && !errors.Is(err, ErrElsewhere) {
				t.Errorf("error %v has no sentinel", err)
			}
			return
		}
		var v RecordView
		if err := r.View(&v); err != nil && !errors.Is(err, ErrGarbage) {
			t.Errorf("View: %v", err)
		}
		_, _, _ = v.Refused(), v.Agreed(), v.Any(func(k *RankView) bool { return k.Fixed })
		if ranks, ok := v.Heard(); ok && bits.OnesCount64(ranks) != len(v.Ranks) {
			t.Errorf("%b of %d ranks", ranks, len(v.Ranks))
		}
		var marks MarkTable
		if err := r.Marks(&marks); err != nil {
			t.Errorf("Marks: %v", err)
		}
		if _, err := r.NewMarks(); err != nil {
			t.Errorf("NewMarks: %v", err)
		}
		p, err := NewPublisher(r)
		if err != nil {
			if !errors.Is(err, ErrGarbage) {
				t.Errorf("NewPublisher: %v", err)
			}
			return
		}
		if _, err := p.Publish(&PlanSpec{}); err != nil && !errors.Is(err, ErrNoFreeBuffer) && !errors.Is(err, ErrGarbage) {
			t.Errorf("Publish: %v", err)
		}
	})
}
