package tuner

import (
	"fmt"
	"slices"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

// Of some trials no times are ever heard, while they are of other calls of their bucket: enqueueing one takes its host longer than a timed call may
// (preload/probe.h), or NCCL always runs something else. Whoever proposed it learns nothing and proposes it again, and no budget has
// it, for what it lost is not known: a program whose host took 0.6 ms to launch our kernels with 64 CTAs made 2,004 plans a minute
// of such trials, and none of anything else. So after a few batches without a word an action leaves its bucket's set.
//
// A host may also be slow because it has no CPU for a while. So what has left is tried once more after a pause, and after twice that if
// nothing is heard again: 20,000 calls have ten such tries of an action. One word is not enough to come back: of an action that
// is mostly too slow only the fast calls are heard of, and it would look good.
const (
	silentBatches = 6
	silentPause   = restCalls // calls of the bucket that are heard of
	silentWords   = 3
	silentLost    = 8 // doublings of the pause by contests lost
)

// silence is what trials of a bucket have not been heard of.
type silence struct {
	heard []actions.Action // of calls under the newest entry
	quiet map[actions.Action]quiet
	back  bool                   // something was heard of that had left
	lost  map[actions.Action]int // contests
}

// quiet is an action of which nothing was heard when other calls were.
type quiet struct {
	batches int    // in a row
	pause   uint64 // calls of the bucket,
	due     uint64 // and as of which it is tried again
	left    bool
	open    bool // a try of which nothing was heard yet
	words   int  // tries in a row that were heard of
	back    bool // no longer, and it is not known yet what it costs
}

// hears takes in that a call was reported, whether it is charged or not.
func (s *silence) hears(a actions.Action) {
	switch q, was := s.quiet[a]; {
	case !was || q.back:
	case !q.left:
		delete(s.quiet, a)
	case q.words+1 == silentWords:
		s.back = true
		s.quiet[a] = quiet{pause: q.pause, back: true} // until its cost is known
	default:
		q.words, q.due, q.open = q.words+1, 0, false
		s.quiet[a] = q
	}
	if !slices.Contains(s.heard, a) {
		s.heard = append(s.heard, a)
	}
}

// learns takes in that the learner was told what a call took, if the action is in its set.
func (s *silence) learns(a actions.Action) {
	if !s.has(a) {
		s.forget(a)
	}
}

// forget has an action be as any other.
func (s *silence) forget(a actions.Action) { delete(s.quiet, a) }

// over says that the trials of an entry have run, after so many calls of the bucket. Where nothing was heard at all that says nothing
// of an action.
func (s *silence) over(e *Entry, calls uint64) {
	for i, a := range e.Trials {
		if len(s.heard) == 0 || a == e.Base || slices.Contains(s.heard, a) || slices.Contains(e.Trials[:i], a) {
			continue
		}
		if s.quiet == nil {
			s.quiet = map[actions.Action]quiet{}
		}
		q := s.quiet[a]
		if q.batches++; q.pause == 0 {
			q.pause, q.due = silentPause, calls+silentPause
		}
		s.quiet[a] = q
	}
}

// begins says that another entry comes.
func (s *silence) begins() { s.heard = s.heard[:0] }

// again has the first action of a list be tried that is due; false: none is.
func (s *silence) again(allowed []actions.Action, calls uint64, withheld func(actions.Action) bool) (a actions.Action, ok bool) {
	if len(s.quiet) == 0 {
		return a, false
	}
	for _, a := range allowed {
		if q := s.quiet[a]; (q.left || q.back) && calls >= q.due && !withheld(a) {
			if q.open { // nothing came of the last one
				q.pause, q.words = 2*q.pause, 0
			}
			q.open, q.due = true, calls+q.pause
			s.quiet[a] = q
			return a, true
		}
	}
	return a, false
}

// leaves has an action leave that has lost a contest. Each time it stays away for longer.
func (s *silence) leaves(a actions.Action, calls uint64) {
	if s.quiet == nil {
		s.quiet = map[actions.Action]quiet{}
	}
	if s.lost == nil {
		s.lost = map[actions.Action]int{}
	}
	pause := uint64(silentPause) << min(s.lost[a], silentLost)
	s.lost[a]++
	s.quiet[a] = quiet{batches: silentBatches, pause: pause, due: calls + pause}
}

// turns has actions leave that were not heard of for too long, and reports whether any has, or any is back.
func (s *silence) turns() bool {
	any := s.back
	s.back = false
	for a, q := range s.quiet {
		if !q.left && q.batches >= silentBatches {
			q.left, any = true, true
			s.quiet[a] = q
		}
	}
	return any
}

// has says that an action has left.
func (s *silence) has(a actions.Action) bool { return s.quiet[a].left }

// of lists those of a set that have left.
func (s *silence) of(set []actions.Action) (left []actions.Action) {
	for _, a := range set {
		if s.has(a) {
			left = append(left, a)
		}
	}
	return left
}

// hush makes a bucket anew whose silent actions have left, or come back, and gives the one that is there then.
func (c *Core) hush(nowNs state.Ns, m *comm, b *bucket) *bucket {
	if base := b.entry.Base; b.contest.lost {
		b.silence.leaves(base, b.calls)
		c.find(nowNs, m, b.Bucket, agents.DiagnosisNone, fmt.Sprintf("%s leaves: its calls keep a host for more than 0.5 ms far more often than those of NCCL's default", base))
	}
	if !b.silence.turns() {
		return b
	}
	made := c.refit(m, b, b.allowed)
	made.guard.Inherit(b.guard)
	m.put(made)
	return made
}
