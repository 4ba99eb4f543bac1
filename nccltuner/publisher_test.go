package nccltuner

import (
	"errors"
	"testing"
)

func newPublisher(t testing.TB, r *Record) *Publisher {
	t.Helper()
	p, err := NewPublisher(r)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// publish publishes an empty plan and gives the buffer that it went to, -1 when none was free.
func publish(t testing.TB, p *Publisher) int {
	t.Helper()
	before := p.record.abi.Newest
	version, err := p.Publish(&PlanSpec{SampleEvery: 1})
	newest := p.record.abi.Newest
	if errors.Is(err, ErrNoFreeBuffer) {
		if newest != before {
			t.Error("no free buffer, and yet another newest")
		}
		return -1
	}
	if err != nil {
		t.Fatal(err)
	}
	buffer := int(newest&255) - 1
	plan := &p.record.abi.Plans[buffer]
	if newest>>8 != version || version != before>>8+1 || plan.Version != version || plan.Checksum != planChecksum(plan) || plan.SampleEvery != 1 {
		t.Errorf("version %d after %d: newest %#x, plan %d", version, before>>8, newest, plan.Version)
	}
	return buffer
}

// What decides whether a buffer is free. In each case exactly one rule protects what is not free, so that no rule can be
// lost unseen.
func TestFreeBuffer(t *testing.T) {
	at := func(epoch uint64, buffer int) uint64 { return epoch<<8 | uint64(buffer+1) } // position or log entry
	const none = -1
	all := func(from uint64) (r [NumPlans]uint64) {
		for b := range r {
			r[b] = from
		}
		return r
	}
	for _, c := range []struct {
		name string
		v    bufferView
		want uint32 // set of free buffers
	}{
		{"nothing published", bufferView{newest: none, log: [8]uint64{}}, 0xff},
		{"newest", bufferView{newest: 2, frontier: 5 << 8, slowest: 5}, 0xfb},
		{"in the log after the slowest rank", bufferView{newest: none, frontier: 9<<8 | 2, slowest: 3,
			log: [8]uint64{0, at(2, 0), at(8, 1)}}, 0xfc},
		{"slowest rank is past the older one", bufferView{newest: none, frontier: 9<<8 | 2, slowest: 8,
			log: [8]uint64{0, at(2, 0), at(8, 1)}}, 0xfd},
		{"slowest rank one epoch before the change", bufferView{newest: none, frontier: 9<<8 | 2, slowest: 7,
			log: [8]uint64{0, at(2, 0), at(8, 1)}}, 0xfc},
		{"prepared and not committed", bufferView{newest: none, frontier: 9<<8 | 1, slowest: 9,
			log: [8]uint64{0, at(2, 0), at(8, 1)}}, 0xfe},
		{"positions", bufferView{newest: none, frontier: 9 << 8, slowest: 9, positions: 1<<7 | 1<<3}, 0x77},
		{"frontier has not moved", bufferView{newest: none, frontier: 9<<8 | 7, slowest: 9, reusableFrom: all(9<<8 | 8)}, 0},
		{"frontier moved, no change", bufferView{newest: none, frontier: 10<<8 | 7, slowest: 9, reusableFrom: all(9<<8 | 8)}, 0xff},
		{"frontier moved with a wrapped index", bufferView{newest: none, frontier: 10 << 8, slowest: 9, reusableFrom: all(9<<8 | 255 + 1)}, 0xff},
		{"wrapped log", bufferView{newest: none, frontier: 90<<8 | 10, slowest: 70,
			log: [8]uint64{at(60, 0), at(80, 1), at(90, 2), at(20, 3), at(30, 4), at(40, 5), at(50, 6), at(55, 7)}}, 0xf8},
		{"log full to the last entry", bufferView{newest: none, frontier: 90<<8 | 7, slowest: 10,
			log: [8]uint64{at(10, 0), at(20, 1), at(30, 2), at(40, 3), at(50, 0), at(60, 1), at(70, 2), at(80, 3)}}, 0xf0},
		{"log moved on meanwhile", bufferView{newest: none, frontier: 90<<8 | 7, slowest: 9,
			log: [8]uint64{at(10, 0), at(20, 1), at(30, 2), at(40, 3), at(50, 0), at(60, 1), at(70, 2), at(80, 3)}}, 0},
		{"every rank has left", bufferView{newest: none, frontier: 9<<8 | 2, slowest: positionLeft >> 8,
			log: [8]uint64{0, at(2, 0), at(8, 1)}}, 0xfd},
		{"nonsense in the log", bufferView{newest: none, frontier: 9<<8 | 1, slowest: 9, log: [8]uint64{0, 2<<8 | 77}}, 0xff},
	} {
		free := uint32(0)
		for v, more := c.v, true; more; {
			b, ok := v.free()
			more = ok && free>>b&1 == 0
			if ok {
				free |= 1 << b
				v.positions |= 1 << b // ask for the next one
			}
		}
		if free != c.want {
			t.Errorf("%s: free %08b, want %08b", c.name, free, c.want)
		}
	}
}

// While nobody enters an epoch, each buffer can be newest once; then the daemon keeps its plan, until the frontier moves.
func TestPublishWaitsForTheFrontier(t *testing.T) {
	r := heapRecord(t, 2)
	p := newPublisher(t, r)
	for want := range NumPlans {
		if got := publish(t, p); got != want {
			t.Fatalf("publication %d went to buffer %d", want, got)
		}
	}
	for range 3 {
		if got := publish(t, p); got != -1 {
			t.Fatalf("buffer %d was written while a stalled rank could still commit it", got)
		}
	}
	r.abi.Frontier = 1 << 8 // an epoch without a change
	if got := publish(t, p); got != 0 {
		t.Errorf("after the frontier moved: buffer %d", got)
	}
	// Buffer 7 was superseded at this frontier, the others before it.
	for want := 1; want < 7; want++ {
		if got := publish(t, p); got != want {
			t.Errorf("got buffer %d, want %d", got, want)
		}
	}
	if got := publish(t, p); got != -1 {
		t.Errorf("buffer %d: every one was superseded at this frontier", got)
	}
}

// A publisher that takes over does not know since when a buffer is not the newest: it waits for the frontier once.
func TestRestartTakesEverythingAsSuperseded(t *testing.T) {
	r := heapRecord(t, 2)
	if got := publish(t, newPublisher(t, r)); got != 0 {
		t.Fatalf("the first plan of all went to buffer %d", got)
	}
	second := newPublisher(t, r)
	if got := publish(t, second); got != -1 {
		t.Errorf("right after a restart: buffer %d", got)
	}
	r.abi.Frontier = 1 << 8
	if got := publish(t, second); got != 1 {
		t.Errorf("after an epoch: buffer %d", got)
	}
	if r.abi.Newest>>8 != 2 {
		t.Errorf("version %d after a restart, want 2: versions never repeat", r.abi.Newest>>8)
	}
	// The buffer superseded just now waits for the frontier again, whoever published it.
	if second.reusableFrom[0] != 1<<8+1 {
		t.Errorf("buffer 0 is reusable from frontier %#x", second.reusableFrom[0])
	}
}

func TestPublisherRefusesNonsense(t *testing.T) {
	r := heapRecord(t, 2)
	p := newPublisher(t, r)
	for _, newest := range []uint64{1<<8 | 9, 1<<8 | 255, 1 << 8, 1} {
		r.abi.Newest = newest
		if _, err := NewPublisher(r); !errors.Is(err, ErrGarbage) {
			t.Errorf("newest %#x: got %v", newest, err)
		}
	}
	r.abi.Newest = 1<<8 | 9
	if _, err := p.Publish(&PlanSpec{}); !errors.Is(err, ErrGarbage) {
		t.Errorf("newest broken later: got %v", err)
	}
	if _, err := p.Publish(&PlanSpec{SampleEvery: 3}); !errors.Is(err, ErrBadPlan) {
		t.Errorf("bad plan: got %v", err)
	}
}

func TestPublishAllocatesNothing(t *testing.T) {
	r := heapRecord(t, 8)
	p := newPublisher(t, r)
	spec := PlanSpec{Entries: entries(63)}
	epoch := uint64(0)
	if n := testing.AllocsPerRun(100, func() {
		epoch++
		r.abi.Frontier = epoch << 8
		if _, err := p.Publish(&spec); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a publication", n)
	}
}

func BenchmarkPublish(b *testing.B) {
	r := heapRecord(b, 8)
	p := newPublisher(b, r)
	spec := PlanSpec{Entries: entries(63)}
	epoch := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		epoch++
		r.abi.Frontier = epoch << 8
		if _, err := p.Publish(&spec); err != nil {
			b.Fatal(err)
		}
	}
}
