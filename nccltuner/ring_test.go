package nccltuner

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

var ringCorruptions = []corruption{
	{"empty", -1, 0, 0, ErrNotReady},
	{"no header", -1, 0, 8, ErrTorn},
	{"header alone", -1, 0, headerSize, ErrTorn},
	{"wrong magic", 0, 7, -1, ErrGarbage},
	{"next version", 8, ABIVersion + 1, -1, ErrVersion},
	{"one byte short", -1, 0, ringSize + 8*cellSize - 1, ErrTorn},
	{"one byte more", -1, 0, ringSize + 8*cellSize + 1, ErrGarbage},
	{"huge", -1, 0, 1 << 40, ErrGarbage},
	{"another process", headerSize, 4, -1, ErrGarbage},
	{"another start", headerSize + 8, 5, -1, ErrGarbage},
	{"no cells", headerSize + 4, 0, -1, ErrGarbage},
	{"one cell", headerSize + 4, 1, -1, ErrGarbage},
	{"odd cells", headerSize + 4, 7, -1, ErrGarbage},
	{"fewer cells than bytes", headerSize + 4, 4, -1, ErrGarbage},
	{"more cells than bytes", headerSize + 4, 16, -1, ErrGarbage},
	{"too many cells", headerSize + 4, 2 * RingCells, -1, ErrGarbage},
}

func TestOpenRingRefuses(t *testing.T) {
	d := openTestDir(t)
	p := Process{3, 4}
	for _, c := range ringCorruptions {
		spoil(t, d, ringName(p), newRingBytes(p, 8), c)
		r, err := d.OpenRing(p)
		if !errors.Is(err, c.want) || r != nil || !strings.Contains(err.Error(), ringName(p)) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
	}
}

// drainAll drains until nothing comes and gives the sequence numbers.
func drainAll(t *testing.T, r *Ring) (seqs []uint64) {
	t.Helper()
	into := make([]Sample, 3)
	for {
		n, err := r.Drain(into)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return seqs
		}
		for _, s := range into[:n] {
			seqs = append(seqs, s.Seq)
		}
	}
}

// sent is a good sample with a number.
func sent(seq uint64) *ABISample {
	s := goodSample()
	s.Seq = seq
	return &s
}

func TestRingKeepsOrderOverManyLaps(t *testing.T) {
	r := heapRing(t, 8)
	next := uint64(0)
	for round := range 100 {
		for range round % 9 {
			if !put(r.abi, r.cells, sent(next)) {
				t.Fatalf("round %d: full", round)
			}
			next++
		}
		for i, seq := range drainAll(t, r) {
			if want := next - uint64(round%9) + uint64(i); seq != want {
				t.Fatalf("round %d: got %d, want %d", round, seq, want)
			}
		}
	}
	if r.tail != next || r.abi.Tail != next {
		t.Errorf("tail %d, shared %d, want %d", r.tail, r.abi.Tail, next)
	}
	for range 8 {
		put(r.abi, r.cells, sent(next))
	}
	if put(r.abi, r.cells, sent(next)) {
		t.Error("9 samples in 8 cells")
	}
	s, err := r.Stats()
	if err != nil || s.Dropped != 1 || s.Samples != next {
		t.Errorf("stats %+v, %v", s, err)
	}
}

// A cell that is claimed and not filled: in a live process everything behind it waits, in a dead one it is passed over.
func TestClaimedAndNotFilled(t *testing.T) {
	r := heapRing(t, 8)
	put(r.abi, r.cells, sent(1))
	stuck := atomic.AddUint64(&r.abi.Head, 1) - 1
	put(r.abi, r.cells, sent(3))
	atomic.AddUint64(&r.abi.Head, 1) // another at the very end
	if got := drainAll(t, r); len(got) != 1 || got[0] != 1 {
		t.Fatalf("got %v, want only the first", got)
	}
	if r.Drained() {
		t.Error("drained while the process lives")
	}
	// The producer was only slow: nothing is lost.
	fill(&r.cells[stuck], sent(2), stuck)
	if got := drainAll(t, r); len(got) != 2 || got[0] != 2 || got[1] != 3 {
		t.Fatalf("got %v, want 2 and 3", got)
	}
	if r.stats.Skipped != 0 {
		t.Errorf("%d skipped in a live process", r.stats.Skipped)
	}
	r.MarkDead()
	if r.Drained() {
		t.Error("drained with a claimed cell left")
	}
	if got := drainAll(t, r); len(got) != 0 || r.stats.Skipped != 1 || !r.Drained() {
		t.Errorf("got %v, skipped %d, drained %v", got, r.stats.Skipped, r.Drained())
	}
}

func TestDeadInTheMiddle(t *testing.T) {
	r := heapRing(t, 8)
	for i := range uint64(8) {
		if i%3 == 1 {
			atomic.AddUint64(&r.abi.Head, 1)
			continue
		}
		put(r.abi, r.cells, sent(i))
	}
	r.MarkDead()
	if got := drainAll(t, r); len(got) != 5 || r.stats.Skipped != 3 || !r.Drained() {
		t.Errorf("got %v, skipped %d, drained %v", got, r.stats.Skipped, r.Drained())
	}
}

// A daemon may die between taking a cell and saying so. The next one neither reads it twice nor loses the rest.
func TestNextDaemonFindsTheTail(t *testing.T) {
	for taken := range uint64(9) {
		for refilled := range taken + 1 {
			r := heapRing(t, 8)
			for i := range uint64(8) {
				put(r.abi, r.cells, sent(i))
			}
			if n, err := r.Drain(make([]Sample, taken)); err != nil || uint64(n) != taken {
				t.Fatalf("%d, %v", n, err)
			}
			r.abi.Tail = 0 // never said
			for i := range refilled {
				put(r.abi, r.cells, sent(8+i))
			}
			next, err := newRing(r.memory, r.process)
			if err != nil {
				t.Fatal(err)
			}
			var got []uint64
			for range 3 { // finding the tail may take a call
				got = append(got, drainAll(t, next)...)
			}
			if uint64(len(got)) != 8-taken+refilled || len(got) > 0 && got[0] != taken {
				t.Errorf("%d taken, %d refilled: got %v", taken, refilled, got)
			}
		}
	}
}

func TestDrainRefusesGarbage(t *testing.T) {
	for name, damage := range map[string]func(r *Ring){
		"cell ahead":   func(r *Ring) { r.cells[0].Cell = 5 },
		"cell behind":  func(r *Ring) { r.cells[0].Cell = ^uint64(0) },
		"cell far":     func(r *Ring) { r.cells[0].Cell = 1 << 60 },
		"tail":         func(r *Ring) { r.tail = 1 << 40 },
		"head":         func(r *Ring) { r.abi.Head = 1 << 40 },
		"head, dead":   func(r *Ring) { r.abi.Head = 1 << 40; r.MarkDead() },
		"head behind":  func(r *Ring) { r.abi.Head = ^uint64(0) },
		"head past it": func(r *Ring) { r.abi.Head = 9 },
	} {
		r := heapRing(t, 8)
		damage(r)
		if n, err := r.Drain(make([]Sample, 4)); n != 0 || !errors.Is(err, ErrGarbage) {
			t.Errorf("%s: got %d, %v", name, n, err)
		}
		if r.MarkDead(); !r.Drained() {
			t.Errorf("%s: a ring of a dead process that cannot be read would stay for ever", name)
		}
	}
}

func TestDrainCountsWhatItDoesNotBelieve(t *testing.T) {
	r := heapRing(t, 16)
	bad := goodSample()
	bad.Collective = NumCollectives
	put(r.abi, r.cells, &bad)
	put(r.abi, r.cells, sent(1))
	bad = goodSample()
	bad.Bytes = 0
	put(r.abi, r.cells, &bad)
	put(r.abi, r.cells, &bad)
	odd := goodSample()
	odd.Algorithm, odd.SignalNs, odd.Seq = 255, 1<<32-1, 2
	put(r.abi, r.cells, &odd)
	atomic.AddUint64(&r.abi.Unjoined, 7)
	atomic.AddUint64(&r.abi.Untold, 8)
	if got := drainAll(t, r); len(got) != 2 || got[0] != 1 || got[1] != 2 {
		t.Errorf("got %v", got)
	}
	want := RingStats{Samples: 2, Unjoined: 7, Untold: 8, UnknownRan: 1, Saturated: 1}
	want.Rejected[RejectCollective], want.Rejected[RejectBytes] = 1, 2
	if s, err := r.Stats(); err != nil || s != want {
		t.Errorf("got %+v, %v, want %+v", s, err, want)
	}
}

// One call never does more than a lap, however fast producers are.
func TestDrainIsBounded(t *testing.T) {
	r := heapRing(t, 8)
	bad := goodSample()
	bad.Bytes = 0 // takes no room in the caller's slice
	for range 8 {
		put(r.abi, r.cells, &bad)
	}
	if n, err := r.Drain(make([]Sample, 4)); n != 0 || err != nil || r.tail != 8 {
		t.Errorf("got %d, %v, tail %d", n, err, r.tail)
	}
	if n, err := r.Drain(nil); n != 0 || err != nil {
		t.Errorf("into nothing: %d, %v", n, err)
	}
}

func TestDrainAllocatesNothing(t *testing.T) {
	r := heapRing(t, 64)
	into := make([]Sample, 64)
	s := goodSample()
	if n := testing.AllocsPerRun(100, func() {
		for range 50 {
			put(r.abi, r.cells, &s)
		}
		if n, err := r.Drain(into); n != 50 || err != nil {
			t.Fatal(n, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a batch", n)
	}
}

// Several producers at once on memory that the race detector watches: every sample arrives once, whole, and in its
// producer's order.
func TestManyProducers(t *testing.T) {
	const producers, each = 3, 20000
	r := heapRing(t, 64)
	var all sync.WaitGroup
	for p := range producers {
		all.Go(func() {
			for i := range uint64(each) {
				s := sent(i)
				s.Rank, s.CommID, s.Bytes = int32(p), i*producers+uint64(p), i+1
				for !put(r.abi, r.cells, s) {
					runtime.Gosched()
				}
			}
		})
	}
	var next [producers]uint64
	into := make([]Sample, 40)
	for total := 0; total < producers*each; {
		n, err := r.Drain(into)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range into[:n] {
			if s.Seq != next[s.Rank] || s.CommID != s.Seq*producers+uint64(s.Rank) || s.Bytes != s.Seq+1 {
				t.Fatalf("producer %d: got %+v, want number %d", s.Rank, s, next[s.Rank])
			}
			next[s.Rank]++
		}
		if total += n; n == 0 {
			runtime.Gosched()
		}
	}
	all.Wait()
	if r.tail != producers*each {
		t.Errorf("tail %d", r.tail)
	}
}

func TestRingTruncatedInUse(t *testing.T) {
	d := openTestDir(t)
	p := Process{3, 4}
	const cells = 1024 // 16 pages
	path := putFile(t, d, ringName(p), newRingBytes(p, cells))
	r, err := d.OpenRing(p)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i := range uint64(cells) {
		put(r.abi, r.cells, sent(i))
	}
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	// The first page is still there, and what it holds arrives.
	into := make([]Sample, cells)
	n, err := r.Drain(into)
	if want := int((4096 - ringSize) / cellSize); n != want || !errors.Is(err, ErrTorn) {
		t.Errorf("got %d samples and %v, want %d and ErrTorn", n, err, want)
	}
	for i, s := range into[:n] {
		if s.Seq != uint64(i) {
			t.Fatalf("sample %d has number %d", i, s.Seq)
		}
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	_, drainErr := r.Drain(into)
	_, statsErr := r.Stats()
	for name, err := range map[string]error{"Drain": drainErr, "Stats": statsErr, "Beat": r.Beat(), "SetWantMask": r.SetWantMask(1)} {
		if !errors.Is(err, ErrTorn) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if r.MarkDead(); !r.Drained() {
		t.Error("a torn ring of a dead process would stay for ever")
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Drain(into); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestRingControls(t *testing.T) {
	r := heapRing(t, 8)
	if err := errors.Join(r.SetWantMask(0x42), r.Beat(), r.Beat()); err != nil {
		t.Fatal(err)
	}
	if r.abi.WantMask != 0x42 || r.abi.Header.Heartbeat != 2 {
		t.Errorf("mask %#x, heartbeat %d", r.abi.WantMask, r.abi.Header.Heartbeat)
	}
}

// Whatever stands in a ring, draining ends in checked samples or a sentinel error, in one lap.
func FuzzRing(f *testing.F) {
	p := Process{3, 4}
	f.Add(newRingBytes(p, 4), true)
	m := heapMapping("", newRingBytes(p, 4))
	abi, cells := m.ring(4)
	for i := range uint64(3) {
		put(abi, cells, sent(i))
	}
	abi.Head++
	f.Add(m.data, true)
	f.Add(m.data, false)
	f.Add(newRingBytes(p, 4)[:ringSize], false)
	f.Fuzz(func(t *testing.T, data []byte, dead bool) {
		if len(data) == 0 || int64(len(data)) > ringSize+64*cellSize {
			return
		}
		r, err := newRing(heapMapping("fuzz", data), p)
		if err != nil {
			if !errors.Is(err, ErrNotReady) && !errors.Is(err, ErrGarbage) && !errors.Is(err, ErrVersion) && !errors.Is(err, ErrTorn) && !errors.Is(err, ErrElsewhere) {
				t.Errorf("error %v has no sentinel", err)
			}
			return
		}
		if dead {
			r.MarkDead()
		}
		before := r.tail
		into := make([]Sample, 2*len(r.cells))
		n, err := r.Drain(into)
		if err != nil && !errors.Is(err, ErrGarbage) {
			t.Errorf("Drain: %v", err)
		}
		if r.tail-before > uint64(len(r.cells)) || n > len(r.cells) {
			t.Errorf("%d samples and %d cells in one lap of %d", n, r.tail-before, len(r.cells))
		}
	})
}
