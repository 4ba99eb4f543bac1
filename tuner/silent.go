package tuner

import (
	"slices"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// Some trials are never heard of, while other calls of their bucket are: enqueueing one takes its host longer than a timed call may
// (preload/probe.h), or NCCL always runs something else. Whoever proposed it learns nothing and proposes it again, and no budget has
// it, for what it lost is not known: a program whose host took 0.6 ms to launch our kernels with 64 CTAs made 2,004 plans a minute
// of such trials, and none of anything else. So after a few batches without a word an action leaves its bucket's set for good.
const silentBatches = 6

// silence is what trials of a bucket have not been heard of.
type silence struct {
	heard   []actions.Action // of calls under the newest entry
	batches map[actions.Action]int
}

// hears takes in that a call was reported, whether it is charged or not.
func (s *silence) hears(a actions.Action) {
	delete(s.batches, a)
	if !slices.Contains(s.heard, a) {
		s.heard = append(s.heard, a)
	}
}

// over says that the trials of an entry have run. Where nothing was heard at all that says nothing of an action.
func (s *silence) over(e *Entry) {
	for i, a := range e.Trials {
		if len(s.heard) == 0 || a == e.Base || slices.Contains(s.heard, a) || slices.Contains(e.Trials[:i], a) {
			continue
		}
		if s.batches == nil {
			s.batches = map[actions.Action]int{}
		}
		s.batches[a]++
	}
}

// begins says that another entry comes.
func (s *silence) begins() { s.heard = s.heard[:0] }

func (s *silence) has(a actions.Action) bool { return s.batches[a] >= silentBatches }

// hush takes out of a bucket's set what was not heard of for too long, and gives the bucket that is there then.
func (c *Core) hush(m *comm, b *bucket) *bucket {
	if len(b.silence.batches) == 0 || !slices.ContainsFunc(b.set, b.silence.has) {
		return b
	}
	if m.silent == nil {
		m.silent = map[state.Bucket][]actions.Action{}
	}
	for _, a := range b.set {
		if b.silence.has(a) {
			m.silent[b.Bucket] = append(m.silent[b.Bucket], a)
		}
	}
	made := c.refit(m, b, m.without(b.Bucket, b.set))
	m.put(made)
	return made
}
