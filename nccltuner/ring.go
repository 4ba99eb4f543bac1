package nccltuner

import (
	"fmt"
	"sync/atomic"
)

// Ring is the samples of one process: the consumer's side of a bounded queue (Vyukov). The cell at position p holds p
// when it is free, p+1 when it is filled; the consumer frees it for the next lap by p+numCells. A full ring drops at the
// producers, so an absent daemon costs samples and nothing else.
type Ring struct {
	process Process
	memory  *mapping
	abi     *ABIRing
	cells   []ABISample
	// tail is our own count: the shared word only tells a daemon after us where to start.
	tail uint64
	dead bool // the process has ended: a cell that is not filled never will be
	// broken: the ring cannot be read any further, for good.
	broken bool
	stats  RingStats
}

// RingStats counts what did not become a sample, since this ring was opened or, where said, since it was created.
type RingStats struct {
	Samples    uint64
	Dropped    uint64             // since creation: the ring was full
	Unjoined   uint64             // since creation: samples without a getCollInfo call
	Untold     uint64             // since creation: samples that found no room on their way between hosts
	Rejected   [NumRejects]uint64 // not believed, by reason
	UnknownRan uint64             // algorithm or protocol that ran has no name here; kept
	Saturated  uint64             // a duration of 4.29 s or more; kept
	Traffic    RingTraffic
	Skipped    uint64 // claimed by a process that ended before it filled them
}

// RingTraffic is what the preload library did for NCCL's Socket network in this process, as far as it has told.
type RingTraffic struct {
	LongBytes  uint64 // of messages that threads of ours could move, sent and received
	MovedBytes uint64 // of these, those that they moved
	Together   uint64 // messages that went in one packet with their size
}

// RingBytes is the size of a process's ring.
const RingBytes = ringSize + RingCells*cellSize

// OpenRing maps the ring of a process after checking everything that can be checked.
func (d *Dir) OpenRing(p Process) (*Ring, error) {
	m, err := mapFile(d.fd, ringName(p), d.uid, RingBytes)
	if err != nil {
		return nil, err
	}
	r, err := newRing(m, p)
	if err != nil {
		return nil, refused(d.fd, m, err)
	}
	return r, nil
}

func newRing(m *mapping, p Process) (*Ring, error) {
	r := &Ring{process: p, memory: m}
	numCells := 0
	var checkErr error
	if err := m.guard(func() { numCells, checkErr = checkRing(m, p) }); err != nil {
		return nil, err
	}
	if checkErr != nil {
		return nil, checkErr
	}
	r.abi, r.cells = m.ring(numCells)
	if err := m.guard(func() { r.tail = atomic.LoadUint64(&r.abi.Tail) }); err != nil {
		return nil, err
	}
	return r, nil
}

// checkRing reads every word once: what was checked is what is used.
func checkRing(m *mapping, p Process) (numCells int, err error) {
	if err := checkHeader(m, RingMagic); err != nil {
		return 0, err
	}
	if int64(len(m.data)) < ringSize {
		return 0, fmt.Errorf("%d bytes, a ring has at least %d: %w", len(m.data), ringSize, ErrTorn)
	}
	abi := m.fixedRing()
	owner, n := Process{abi.Pid, abi.StartTime}, abi.NumCells
	switch {
	case owner != p:
		return 0, fmt.Errorf("ring of %s started at %d under another name: %w", owner, owner.StartTime, ErrGarbage)
	case n < 2 || n > RingCells || n&(n-1) != 0:
		return 0, fmt.Errorf("%d cells, want a power of two up to %d: %w", n, RingCells, ErrGarbage)
	case int64(len(m.data)) != ringSize+int64(n)*cellSize:
		return 0, fmt.Errorf("%d bytes, %d cells need %d: %w", len(m.data), n, ringSize+int64(n)*cellSize, ErrGarbage)
	}
	return int(n), nil
}

// Process is whose samples these are.
func (r *Ring) Process() Process { return r.process }

// Name is the file's name in the directory.
func (r *Ring) Name() string { return r.memory.name }

// Drain moves samples into a slice of the caller and says how many. It stops when the slice is full, when the ring is
// empty, when a producer is in the middle of filling the next cell (a later call gets it), or after one lap. It allocates
// nothing. With an error the first n samples are good; ErrGarbage and ErrTorn do not go away.
func (r *Ring) Drain(into []Sample) (n int, err error) {
	var bad error
	if err = r.memory.guard(func() { bad = r.drain(into, &n) }); err == nil {
		err = bad
	}
	r.broken = r.broken || err != nil
	return n, err
}

func (r *Ring) drain(into []Sample, n *int) error {
	before := r.tail
	defer func() {
		if r.tail != before {
			// One store a batch: cells say precisely what was consumed, this only spares the next daemon a search.
			atomic.StoreUint64(&r.abi.Tail, r.tail)
		}
	}()
	lap, mask := uint64(len(r.cells)), uint64(len(r.cells)-1)
	var local ABISample
	for range r.cells {
		if *n == len(into) {
			return nil
		}
		cell := &r.cells[r.tail&mask]
		// Differences modulo 2^64, as the producers compute them.
		switch seq := atomic.LoadUint64(&cell.Cell); seq - r.tail {
		case 1: // filled: the load pairs with the producer's store of seq, the copy below is whole
			local = *cell
			// Pairs with the producer's load: it may write the cell from here on.
			atomic.StoreUint64(&cell.Cell, r.tail+lap)
			r.tail++
			r.take(&local, into, n)
		case 0: // empty, or claimed and not filled yet
			done, err := r.skip()
			if done || err != nil {
				return err
			}
		case lap, lap + 1: // a daemon before us took it and died before it said so
			r.tail++
		default:
			return fmt.Errorf("%s: cell of position %d holds %d: %w", r.memory.name, r.tail, seq, ErrGarbage)
		}
	}
	return nil
}

// skip passes over a cell that a dead process claimed and never filled. done: nothing more to read now.
func (r *Ring) skip() (done bool, err error) {
	// No producer claims a cell that was not freed before: a head that is further away is torn, and ranks that read it drop all they have.
	waiting := atomic.LoadUint64(&r.abi.Head) - r.tail
	if waiting > uint64(len(r.cells)) {
		return false, fmt.Errorf("%s: head is %d cells from tail %d in a ring of %d: %w", r.memory.name, int64(waiting), r.tail, len(r.cells), ErrGarbage)
	}
	if waiting == 0 || !r.dead {
		return true, nil
	}
	r.tail++
	r.stats.Skipped++
	return false, nil
}

func (r *Ring) take(cell *ABISample, into []Sample, n *int) {
	out := &into[*n]
	if reason := decodeSample(cell, out); reason != rejectNone {
		r.stats.Rejected[reason]++
		return
	}
	if saturated(cell) {
		r.stats.Saturated++
	}
	if out.Ran.Path == 0 {
		r.stats.UnknownRan++
	}
	r.stats.Samples++
	*n++
}

// MarkDead says that the process has ended. Drain then passes over cells that it left unfilled.
func (r *Ring) MarkDead() { r.dead = true }

// Drained says that the process has ended and that nothing is left that could be read.
func (r *Ring) Drained() bool {
	drained := r.broken
	err := r.memory.guard(func() { drained = drained || atomic.LoadUint64(&r.abi.Head) == r.tail })
	return r.dead && (drained || err != nil)
}

// Stats reads the counters.
func (r *Ring) Stats() (RingStats, error) {
	s := r.stats
	err := r.memory.guard(func() {
		s.Dropped, s.Unjoined, s.Untold = atomic.LoadUint64(&r.abi.Dropped), atomic.LoadUint64(&r.abi.Unjoined), atomic.LoadUint64(&r.abi.Untold)
		s.Traffic = RingTraffic{atomic.LoadUint64(&r.abi.LongBytes), atomic.LoadUint64(&r.abi.MovedBytes), atomic.LoadUint64(&r.abi.Together)}
	})
	return s, err
}

// SetWantMask says which profiler events are wanted in this process: NCCL's activation mask, 0: none.
func (r *Ring) SetWantMask(mask uint32) error {
	return r.memory.guard(func() { atomic.StoreUint32(&r.abi.WantMask, mask) })
}

// Beat tells the process that a daemon reads. Sampling stops when it stands still.
func (r *Ring) Beat() error {
	return r.memory.guard(func() { atomic.AddUint64(&r.abi.Header.Heartbeat, 1) })
}

// Close unmaps the ring. The file stays: it is the process's.
func (r *Ring) Close() error { return r.memory.close() }
