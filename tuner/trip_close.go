package tuner

import (
	"dynamiccl/agents"
	"dynamiccl/state"
)

// One call in 256 tells little of a program that makes few over GIN, or leaves it within a few. So where a way begins to look other
// than expected, has changed and nobody knows how, or nothing is expected of it yet, one in 16 of the communicator's calls is timed, as
// the plan says to all ranks alike. What that costs is bounded by itself: a program whose links are never quiet pays no more.
const (
	answerNs      = state.Ns(6000) // by which an answer makes a timed call longer
	closeShare    = 0.005          // of the time that such answers may take
	closeMost     = state.Ns(50e6) // of that, saved up: ten seconds'
	closeLeast    = closeMost / 5  // that is there when it begins
	closeHold     = state.Ns(1e9)  // a reason is good for so long: ranks look twice a second
	closeAgain    = state.Ns(2e9)  // after which a plan says so anew, for ranks stop by themselves (DYN_GIN_CLOSELY)
	nearThreshold = 1. / 3         // a detector's statistic, as a share
)

// closer decides about one communicator.
type closer struct {
	on     bool
	leftNs state.Ns // that answers may take
	atNs   state.Ns // of the last look; 0: none yet
	wantNs state.Ns // when there was a reason last; 0: never
	saidNs state.Ns // when a plan said so last
	number uint32   // of the call that was told of last
}

// heard takes in a put that was told of. A call's is charged once, where its ways are told of one behind the other.
func (c *closer) heard(e *Trip) {
	if c.on && !e.InGraph && e.Number != c.number {
		c.leftNs -= answerNs
	}
	c.number = e.Number
}

// look reports whether a plan has to say something else than the last one.
func (c *closer) look(nowNs state.Ns) bool {
	switch {
	case c.atNs == 0:
		c.leftNs = closeMost
	case nowNs > c.atNs:
		c.leftNs = min(closeMost, c.leftNs+state.Ns(closeShare*float64(nowNs-c.atNs)))
	}
	c.atNs = nowNs
	was, least := c.on, closeLeast
	if was {
		least = 0
	}
	c.on = c.wantNs != 0 && nowNs-c.wantNs < closeHold && c.leftNs > least
	if c.on && nowNs-c.saidNs > closeAgain || c.on != was {
		c.saidNs = nowNs
		return true
	}
	return false
}

// wanting says that the puts of a way which were told of are not enough.
func (l *link) wanting(d *agents.Detector) bool {
	s := d.Stat()
	return d.Warming() || l.diagnoser.Undecided() || max(s.Signal, s.Counter, l.together.Stat()) >= nearThreshold
}

// wantsCloser reports whether a plan has to say something else than the last one about how often puts are timed.
func (m *comm) wantsCloser(nowNs state.Ns) bool { return m.trips != nil && m.trips.closer.look(nowNs) }
