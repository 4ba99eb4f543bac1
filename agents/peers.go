package agents

import "dynamiccl/state"

// Peers is what the learners of one communicator's buckets know of each other's measurements: what is good at 256 KiB
// is seldom bad at 1 MiB. One goroutine at a time.
type Peers struct {
	arms  map[state.Bucket]*arms
	order []state.Bucket // of joining, so that nothing depends on map order
}

// NewPeers is for one communicator.
func NewPeers() *Peers { return &Peers{arms: map[state.Bucket]*arms{}} }

// join makes a bucket's measurements known; they replace those of an earlier learner of the bucket.
func (p *Peers) join(b state.Bucket, a *arms) {
	if p == nil {
		return
	}
	if _, known := p.arms[b]; !known {
		p.order = append(p.order, b)
	}
	p.arms[b] = a
}
