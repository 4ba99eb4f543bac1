package tuner

import (
	"slices"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// Where a program computes beside its calls, as in a backward pass, it has the fewer multiprocessors for that the more of them a call takes
// (docs/design.md, decision 33). That the stream of large calls waits for more than the calls before them shows that it may: then these have no
// kernel of ours that takes many more CTAs than NCCL's own, so that what is chosen by time loses nothing beside them.

const (
	// computesCTAs is the first number that is tried of ours from as many on as NCCL's default has of large calls over NVLink (24 on 4 H200).
	computesCTAs = 32
	// computesLog2: what smaller calls take of multiprocessors is less than what they gain. On 4 H200 AllReduce of 1 MiB takes 8.5 us with 64
	// CTAs and 11.1 with 32, of 4 MiB 27.4 and 29.5 (docs/figures, gpu-sweep-kernels-2026-11-22).
	computesLog2 = 21

	computesFirst = 64 // large calls that were heard, and of which this part begin behind a gap
	computesGaps  = 1.0 / 4
	computesCalls = 512 // are remembered
	// Until the first are heard every call is, but no more than so many, and only while large ones are among the latest that were heard: small
	// ones take no longer than timing them does.
	computesSought = 1024
	computesNear   = 8
)

// computes says whether the stream of large calls waits for more than the calls before them. Once it has, it stays so: what comes and goes
// would have choices come and go.
type computes struct {
	latest        interval
	heard, behind int
	on            bool
	sought        int // calls
	near          int // so many more while no large one is among them
}

// hear takes in a call that all ranks have told of; true: it computes, and did not.
func (p *computes) hear(s interval, bytes uint64) bool {
	before, follows := p.latest.next(s)
	p.sought = min(p.sought+1, computesSought)
	large := bytes >= 1<<computesLog2
	if p.near = max(0, p.near-1); large {
		p.near = computesNear
	}
	if p.on || !follows || !large {
		return false
	}
	if p.heard++; s.waited(before) > 0 {
		p.behind++
	}
	if p.heard > computesCalls {
		p.heard, p.behind = p.heard/2, p.behind/2
	}
	p.on = p.heard >= computesFirst && float64(p.behind) >= computesGaps*float64(p.heard)
	return p.on
}

// spares says that a bucket's kernels leave multiprocessors to what is computed beside them. That is a part of the step guard: a call that is
// charged what it adds to the step pays for them by itself.
func (m *comm) spares(b state.Bucket) bool {
	return m.computes.on && b.Log2Bytes >= computesLog2
}

// mostCTAs is what a kernel of a bucket may have.
func (m *comm) mostCTAs(b state.Bucket) uint8 {
	if m.spares(b) {
		return min(m.mostPlaces(), computesCTAs)
	}
	return m.mostPlaces()
}

// guardsCompute says that a communicator's steps are guarded, and that its kernels load and store.
func (m *comm) guardsCompute() bool { return m.audit != nil && m.Shape.Nodes == 1 }

// hearsCompute takes in a call.
func (c *Core) hearsCompute(m *comm, s *Sample, seq uint64) {
	if m.guardsCompute() && m.computes.hear(interval{seq, m.joiner.beganNs, m.joiner.endedNs}, s.Bytes) {
		c.refits(m)
	}
}

// seeks says that every call is to be heard, for a bucket may take more multiprocessors than it should.
func (m *comm) seeks() bool {
	p := &m.computes
	return m.guardsCompute() && !p.on && p.heard < computesFirst && p.sought < computesSought && p.near > 0 && slices.ContainsFunc(m.order, func(b *bucket) bool {
		return b.Log2Bytes >= computesLog2 && slices.ContainsFunc(b.set, func(a actions.Action) bool { return withCTAs(a, computesCTAs, false) != a })
	})
}
