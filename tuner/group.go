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
	needs     uint64 // bit r: it is complete once rank r has
	bucket    state.Bucket
	bytes     uint64
	action    actions.Action
	ran       actions.Action
	plan      uint32 // version in force
	made      uint16 // calls of the bucket so far, where events say so
	entryCall uint8
	shortest  span
	far       span // of ranks elsewhere; its signalNs is 0: none has told
	longestNs state.Ns
	last      span  // the last rank to arrive; used while instants holds
	startNs   int64 // first kernel start over ranks, host's clock
	endNs     int64 // last end
	firstEnd  int64
	issuedNs  int64 // the latest; 0: no rank knows
	network   bool  // some rank received through the network
	kernels   bool  // times are kernels' own
	events    bool  // times are the whole call's on every rank
	instants  bool  // every rank so far said when it started, and its clock is known
	bad       bool  // aggregated, or ranks that do not tell the same
	wished    bool  // on a rank that may have it declined
	differs   bool  // the latter
	slow      bool  // a rank's host took too long: it has no times
}

// span is one rank's part of a call.
type span struct {
	rank      int32
	startNs   int64 // host's clock
	endNs     int64 // of the kernel, or of the last receive if that is later
	kernel    bool  // timed by the kernel itself
	event     bool  // timed by CUDA events
	issuedNs  int64 // likewise, host's clock: when the call had returned; 0: not known
	network   bool
	counterNs state.Ns
	signalNs  state.Ns
}

// joiner puts samples of one communicator together, call by call.
type joiner struct {
	heard      uint64 // bit r: rank r is on this host and tells of its calls; a call is complete once all of these have
	far        far    // and of other hosts those that tell
	clocks     []rankClock
	groups     []group // groupWindow of them, made at the first sample: most communicators of a big job stay silent
	incomplete uint64  // groups given up because a rank is missing
	late       uint64  // samples of groups already given up, or repeated
	told       uint64  // samples of ranks elsewhere
	disagreed  uint64  // groups whose ranks ran different things: must stay 0
	unclocked  uint64  // groups of one-way collectives and trees that came before the clocks were known
	incoherent uint64  // groups whose instants contradict each other
	lateInRow  int     // samples since one that fitted
	missInRow  int     // calls given up since one that was complete
	missing    uint64  // bit r: rank r was missing in all of them
	// Of the call that was completed last, host's clock: the last rank's start, and the last end. 0: not known.
	beganNs, endedNs int64
	addedNs          state.Ns // what timing it has added to it
	made             uint16   // and calls of its bucket so far,
	counted          bool     // where that is known
	slow             bool     // what it cost is not;
	aggregated       bool     // with others,
	differs          bool     // or ranks did not tell the same
	wished           bool     // NCCL may have declined it
}

// add takes one sample. done is true when it completes its group; o is then the group's observation.
func (j *joiner) add(now state.Ns, s *Sample) (o state.Observation, bad, done bool) {
	if tells(j.far.may, s.Rank) {
		return j.addFar(now, s)
	}
	if !tells(j.heard, s.Rank) || s.SignalNs <= 0 && !s.Slow {
		j.late++
		return o, false, false
	}
	if j.groups == nil {
		j.groups, j.clocks = make([]group, groupWindow), make([]rankClock, bits.Len64(j.heard|j.far.may))
	}
	g := &j.groups[s.Seq%groupWindow]
	bit := uint64(1) << uint(s.Rank)
	j.lateInRow++
	switch {
	case g.seen == 0 || g.seq < s.Seq:
		if g.seen != g.needs {
			j.giveUp(g)
		}
		*g = group{seq: s.Seq, seen: bit, needs: j.heard | j.far.opens(now), bucket: s.Bucket, bytes: s.Bytes, action: s.Action, ran: s.Ran, plan: s.Plan,
			made: s.Made, entryCall: s.EntryCall, bad: s.Aggregated, wished: s.Wished}
	case g.seq > s.Seq || g.seen&bit != 0:
		j.late++
		return o, false, false
	default:
		j.compare(g, s)
	}
	g.slow = g.slow || s.Slow
	g.take(j.instant(s))
	j.lateInRow = 0
	return j.complete(now, g)
}

// compare takes in what another rank ran, which is to be the same.
func (j *joiner) compare(g *group, s *Sample) {
	g.seen |= uint64(1) << uint(s.Rank)
	g.bad = g.bad || s.Aggregated
	g.wished = g.wished || s.Wished
	if g.ran == actions.Default { // that rank could not tell; nothing contradicts what another one says
		g.ran = s.Ran
	}
	if g.bucket != s.Bucket || g.action != s.Action || (s.Ran != actions.Default && g.ran != s.Ran) {
		if !g.bad {
			j.disagreed++
			g.differs = true
		}
		g.bad = true
	}
}

// complete gives what a call came to once all that it needs have told; as add.
func (j *joiner) complete(now state.Ns, g *group) (o state.Observation, bad, done bool) {
	if g.seen != g.needs {
		return o, false, false
	}
	j.missInRow, j.beganNs, j.endedNs, j.addedNs = 0, 0, 0, g.added()
	j.made, j.counted, j.slow = g.made, g.events, g.slow
	j.aggregated, j.differs, j.wished = g.bad && !g.differs, g.differs, g.wished
	o = state.Observation{AtNs: now, Seq: g.seq, Action: g.action, Ran: g.ran, Bytes: g.bytes, Plan: g.plan, EntryCall: g.entryCall}
	if g.slow {
		return o, g.bad, true
	}
	switch f := g.cost(&o); {
	case f == sound || g.bad:
		o.Idle = g.instants && g.issuedNs != 0 && g.issuedNs > g.last.startNs-launchWayNs
		if f == sound && g.instants {
			j.beganNs, j.endedNs = g.last.startNs, g.endNs
		}
		return o, g.bad, true
	case f == unclocked:
		j.unclocked++
	default:
		j.incoherent++
	}
	return o, true, true
}

// instant is when the sample's kernel started, on the clock that all ranks share; false: nobody can say.
func (j *joiner) instant(s *Sample) (span, bool) {
	at := span{rank: s.Rank, startNs: int64(s.StartNs), endNs: int64(s.StartNs) + int64(s.SignalNs), counterNs: s.CounterNs, signalNs: s.SignalNs}
	at.event = s.EventTimed
	at.kernel = s.StartNs != 0 && !s.HostTimed && !s.EventTimed
	switch {
	case s.Slow || s.StartNs == 0 || s.StartNs > maxInstantNs:
		return at, false
	case s.HostTimed:
		return at, true
	case s.ClockNs == 0 || s.ClockNs > maxInstantNs || s.ClockNs < -maxInstantNs:
		return at, false
	}
	c := &j.clocks[s.Rank]
	c.hear(at.startNs, s.ClockNs)
	at.startNs = c.toHost(at.startNs)
	at.endNs = at.startNs + int64(s.SignalNs)
	if s.EventTimed {
		at.issuedNs = s.RecvNs
		// A stream with nothing to do reaches the call before the host has issued it: that wait is the host's, and depends
		// on how far ahead the program is, not on the choice.
		if s.RecvNs > at.startNs && s.RecvNs < at.endNs {
			waited := state.Ns(s.RecvNs - at.startNs)
			at.startNs = s.RecvNs
			at.signalNs -= waited
			at.counterNs = max(0, at.counterNs-waited) // what was sent before it was issued contradicts itself: not measured
		}
		return at, c.known()
	}
	at.network = s.RecvNs != 0
	// The kernel's end is when its first thread is done, which for a tree is when this rank has sent up: what comes down is
	// received later.
	if s.RecvNs > at.endNs && s.RecvNs < maxInstantNs {
		at.endNs = s.RecvNs
	}
	return at, c.known()
}

// launchWayNs is about what a GPU needs from a launch to the kernel's beginning (2x H200: calls of 2.5 us that their stream waits for take
// 6 to 7). A call that a rank has issued later than so long before the last one starts shows that, too.
const launchWayNs = 5_000

// maxInstantNs is two centuries: what is beyond was not measured, and differences of such numbers overflow.
const maxInstantNs = 1 << 62

// take adds one rank to the group.
func (g *group) take(s span, instant bool) {
	first := bits.OnesCount64(g.seen) == 1
	g.instants = instant && (first || g.instants)
	g.events = s.event && (first || g.events)
	if first || s.signalNs < g.shortest.signalNs {
		g.shortest = s
	}
	g.longestNs = max(g.longestNs, s.signalNs)
	if first || s.startNs > g.last.startNs {
		g.last = s
	}
	if first {
		g.startNs, g.endNs, g.firstEnd = s.startNs, s.endNs, s.endNs
		g.kernels = s.kernel
	}
	g.startNs, g.endNs, g.firstEnd = min(g.startNs, s.startNs), max(g.endNs, s.endNs), min(g.firstEnd, s.endNs)
	g.network = g.network || s.network
	g.issuedNs = max(g.issuedNs, s.issuedNs)
}

// stuck reports that nothing has fitted for long.
func (j *joiner) stuck() bool { return j.lateInRow >= stuckSamples }

// restart forgets all open calls.
func (j *joiner) restart() {
	j.incomplete += j.open()
	clear(j.groups)
	j.lateInRow = 0
}

// open is how many calls some rank has told of and others have not.
func (j *joiner) open() (n uint64) {
	for i := range j.groups {
		if g := &j.groups[i]; g.seen != g.needs {
			n++
		}
	}
	return n
}

func (j *joiner) giveUp(g *group) {
	j.incomplete++
	j.far.lost(g)
	if g.seen&j.heard == j.heard {
		return // who is elsewhere may be silent
	}
	if j.missInRow++; j.missInRow == 1 {
		j.missing = j.heard
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
