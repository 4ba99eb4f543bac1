package tuner

import (
	"math/bits"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// groupWindow is how many calls of a communicator may be open at once: a rank that reports later than this many calls
// after the first rank is counted as missing. A power of two.
const groupWindow = 1024

// stuckSamples is how many samples in a row may fit no open call before joining starts anew: one call number from a
// broken process, far ahead of all others, would otherwise make every later sample late.
const stuckSamples = 4096

// silentCalls is how many calls in a row may miss the same rank before people are told.
const silentCalls = 256

// group gathers the samples of one call from all ranks.
type group struct {
	seq       uint64
	seen      uint64 // bit r: rank r has reported
	bucket    state.Bucket
	bytes     uint64
	action    actions.Action
	ran       actions.Action
	counterNs state.Ns // of the last rank to arrive, that is, the one with the shortest signal
	signalNs  state.Ns // shortest over ranks
	longestNs state.Ns
	firstRank int32
	bad       bool // aggregated, or ranks that do not tell the same
}

// joiner puts samples of one communicator together, call by call.
type joiner struct {
	ranks      int
	groups     []group // groupWindow of them, made at the first sample: most communicators of a big job stay silent
	incomplete uint64  // groups given up because a rank is missing
	late       uint64  // samples of groups already given up, or repeated
	disagreed  uint64  // groups whose ranks ran different things: must stay 0
	lateInRow  int     // samples since one that fitted
	missInRow  int     // calls given up since one that was complete
	missing    uint64  // bit r: rank r was missing in all of them
}

// add takes one sample. done is true when it completes its group; o is then the group's observation.
func (j *joiner) add(now state.Ns, s *Sample) (o state.Observation, bad, done bool) {
	if s.Rank < 0 || int(s.Rank) >= j.ranks || s.SignalNs <= 0 {
		j.late++
		return o, false, false
	}
	if j.groups == nil {
		j.groups = make([]group, groupWindow)
	}
	g := &j.groups[s.Seq%groupWindow]
	bit := uint64(1) << uint(s.Rank)
	j.lateInRow++
	switch {
	case g.seen == 0 || g.seq < s.Seq:
		if g.seen != 0 && bits.OnesCount64(g.seen) < j.ranks {
			j.giveUp(g)
		}
		*g = group{seq: s.Seq, seen: bit, bucket: s.Bucket, bytes: s.Bytes, action: s.Action, ran: s.Ran,
			counterNs: s.CounterNs, signalNs: s.SignalNs, longestNs: s.SignalNs, firstRank: s.Rank, bad: s.Aggregated}
	case g.seq > s.Seq || g.seen&bit != 0:
		j.late++
		return o, false, false
	default:
		g.seen |= bit
		g.bad = g.bad || s.Aggregated
		if g.bucket != s.Bucket || g.action != s.Action || g.ran != s.Ran {
			if !g.bad {
				j.disagreed++
			}
			g.bad = true
		}
		if s.SignalNs < g.signalNs {
			g.signalNs, g.counterNs, g.firstRank = s.SignalNs, s.CounterNs, s.Rank
		}
		g.longestNs = max(g.longestNs, s.SignalNs)
	}
	j.lateInRow = 0
	if bits.OnesCount64(g.seen) < j.ranks {
		return o, false, false
	}
	j.missInRow = 0
	o = state.Observation{AtNs: now, Seq: g.seq, Action: g.action, Ran: g.ran, Bytes: g.bytes, CounterNs: g.counterNs,
		SignalNs: g.signalNs, SkewNs: g.longestNs - g.signalNs, FirstRank: g.firstRank}
	return o, g.bad, true
}

// stuck reports that nothing has fitted for long.
func (j *joiner) stuck() bool { return j.lateInRow >= stuckSamples }

// restart forgets all open calls.
func (j *joiner) restart() {
	clear(j.groups)
	j.lateInRow = 0
}

func (j *joiner) giveUp(g *group) {
	j.incomplete++
	if j.missInRow++; j.missInRow == 1 {
		j.missing = ^uint64(0) >> (64 - j.ranks)
	}
	j.missing &^= g.seen
}

// silent gives the rank that has just been missing for too long; false: nothing new to tell.
func (j *joiner) silent() (rank int, ok bool) {
	if j.missInRow != silentCalls {
		return 0, false
	}
	j.missInRow++ // told once
	return bits.TrailingZeros64(j.missing), j.missing != 0
}
