package nccltuner

import (
	"fmt"
	"sync/atomic"
)

// Publisher writes the plans of one record and decides when a plan buffer may be written again (docs/design.md, decision
// 4). A record has one publisher at a time: its process holds the directory's lock.
type Publisher struct {
	record *Record
	// reusableFrom[b] is one more than the frontier as read after buffer b stopped being the newest. A rank that loaded
	// the old newest had read an older frontier, so once the frontier has come here, its swap cannot succeed any more.
	reusableFrom [NumPlans]uint64
	staging      ABIPlan
	// pause is called between accesses to shared memory when it is set. Tests let ranks run there.
	pause func()
}

func (p *Publisher) step() {
	if p.pause != nil {
		p.pause()
	}
}

// NewPublisher takes over a record from a publisher that is no more, or starts one that never had any.
func NewPublisher(r *Record) (*Publisher, error) {
	p := &Publisher{record: r}
	var bad error
	err := r.memory.guard(func() {
		newest := atomic.LoadUint64(&r.abi.Newest)
		frontier := atomic.LoadUint64(&r.abi.Frontier)
		if newest&255 > NumPlans || (newest>>8 == 0) != (newest&255 == 0) {
			bad = fmt.Errorf("%s: newest plan %#x: %w", r.memory.name, newest, ErrGarbage)
			return
		}
		if newest == 0 {
			return // newest never goes back to nothing: no plan was ever published, so no rank can hold an old one
		}
		// Which buffers were newest, and until when, died with the publisher before us. All of them are taken as
		// superseded this moment; the newest gets its own moment once we supersede it.
		for b := range p.reusableFrom {
			p.reusableFrom[b] = frontier + 1
		}
	})
	if err == nil {
		err = bad
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Publish makes spec the newest plan and gives its version. Ranks follow at their next epoch, all at the same one.
// ErrNoFreeBuffer means that the plan before stays, and that trying again later helps.
func (p *Publisher) Publish(spec *PlanSpec) (version uint64, err error) {
	if err := encodePlan(&p.staging, spec); err != nil {
		return 0, err
	}
	var bad error
	if err := p.record.memory.guard(func() { version, bad = p.publish() }); err != nil {
		return 0, err
	}
	return version, bad
}

func (p *Publisher) publish() (version uint64, err error) {
	v, err := p.look()
	if err != nil {
		return 0, err
	}
	buffer, ok := v.free()
	if !ok {
		return 0, fmt.Errorf("%s: %w", p.record.memory.name, ErrNoFreeBuffer)
	}
	return p.write(buffer), nil
}

// look reads what the reuse of buffers depends on.
//
// The frontier is read first. For a buffer that passes the frontier test, every log entry that will ever name it stands in
// the log by then, at or before entry n. Positions only grow, and an entry is only overwritten once every rank is past
// it, so positions and entries may be read late or one after the other: that can only show a need that is over.
func (p *Publisher) look() (v bufferView, err error) {
	abi := p.record.abi
	newest := atomic.LoadUint64(&abi.Newest)
	if newest&255 > NumPlans {
		return v, fmt.Errorf("%s: newest plan %#x: %w", p.record.memory.name, newest, ErrGarbage)
	}
	v.newest, v.reusableFrom = int(newest&255)-1, p.reusableFrom
	p.step()
	v.frontier = atomic.LoadUint64(&abi.Frontier)
	v.slowest = positionLeft >> 8
	for i := range p.record.ranks {
		p.step()
		// A rank that has left stands at the end of time and names no buffer.
		position := atomic.LoadUint64(&p.record.ranks[i].Position)
		v.slowest = min(v.slowest, position>>8)
		v.positions |= bufferBit(position)
	}
	for i := range v.log {
		p.step()
		v.log[i] = atomic.LoadUint64(&abi.Changes[i])
	}
	return v, nil
}

// write puts the staged plan into a free buffer and makes it the newest.
func (p *Publisher) write(buffer int) (version uint64) {
	abi := p.record.abi
	newest := atomic.LoadUint64(&abi.Newest)
	version = newest>>8 + 1
	p.staging.Version = version
	p.staging.Checksum = planChecksum(&p.staging)
	from, to := p.staging.words(), abi.Plans[buffer].words()
	const half = planWords / 2
	p.step()
	copy(to[:half], from[:half])
	p.step()
	copy(to[half:], from[half:])
	p.step()
	// This store is what makes the buffer immutable; it pairs with the ranks' load of newest, and later of the log.
	atomic.StoreUint64(&abi.Newest, version<<8|uint64(buffer+1))
	p.step()
	if old := newest & 255; old != 0 {
		// Read after the store: a rank that still got the old newest had read its frontier before.
		p.reusableFrom[old-1] = atomic.LoadUint64(&abi.Frontier) + 1
	}
	return version
}

// bufferView is all that the reuse of a buffer depends on.
type bufferView struct {
	newest       int    // buffer, -1: none
	frontier     uint64 // epoch << 8 | index of the log entry
	reusableFrom [NumPlans]uint64
	slowest      uint64 // epoch of the slowest rank that has not left
	positions    uint32 // set of buffers that ranks have in force
	log          [NumChanges]uint64
}

// bufferBit is the set of the one buffer that a log entry or a position names; words that name none or nonsense give the
// empty set.
func bufferBit(word uint64) uint32 {
	if slot := word & 255; slot != 0 && slot <= NumPlans {
		return 1 << (slot - 1)
	}
	return 0
}

// free applies decision 4.
func (v *bufferView) free() (buffer int, ok bool) {
	needed := v.positions
	if v.newest >= 0 {
		needed |= 1 << v.newest
	}
	found := false
	for back := uint64(0); back < NumChanges && !found; back++ {
		entry := v.log[(v.frontier-back)%NumChanges]
		needed |= bufferBit(entry)
		found = entry>>8 <= v.slowest
	}
	if !found {
		return 0, false // the ranks changed the log meanwhile: what the slowest needs is not known
	}
	for b := range NumPlans {
		if needed>>b&1 == 0 && v.frontier >= v.reusableFrom[b] {
			return b, true
		}
	}
	return 0, false
}
