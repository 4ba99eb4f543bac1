package agents

import (
	"math"
	"slices"

	"dynamiccl/state"
)

// evidenceCalls is how many calls of a bucket after a change are looked at: enough to tell a few percent apart at 5%
// noise, few enough that a second change rarely falls among them.
const evidenceCalls = 32

// settledCalls is how many calls after an alarm say whether there is a lasting change at all.
const settledCalls = 16

// sameChangeCalls is how many calls of an open episode before an alarm tell whether they already show what alarmed.
const sameChangeCalls = 4

// selected is the part of an alarm's rise by which it may miss what was known: the calls that make one are high by selection, hence no less.
const selected = 2.0 / 3

// staleCalls is how many calls before a change can say that an expectation was off already.
const staleCalls = 8

// recentCalls is how many calls of a bucket are remembered from before an alarm: a detector needs about ten calls to
// find a step, and in these the other buckets have seen it too.
const recentCalls = 24

// lateCalls is how many calls of a communicator after a change are enough, whatever sizes are rare among them; where there are many
// sizes, settledCalls for each.
const lateCalls = 3 * evidenceCalls

// goneCalls is how many calls of a communicator may pass for each bucket of it without one of a bucket, before no more of that one
// are waited for: another choice has other sizes of puts, and a program goes on to something else.
const (
	goneCalls      = 64 // at least
	goneCallsEach  = 4
	judgeLateCalls = 16 // how often, in calls, an episode is judged that has no diagnosis and no more evidence of its sizes
)

// evidence is one bucket's part of a diagnosis: the last calls, and the calls since the change against expectations that
// were frozen when the episode began.
type evidence struct {
	detector  *Detector
	bytes     float64
	byGPU     bool // its calls are puts that the GPU itself gives to the NIC
	recent    [recentCalls]sighting
	seen      int // sightings ever stored in recent
	frozen    []reference
	healthy   []reference // frozen, as of the first of the changes that are in force
	under     []underFault
	toldSince uint64  // back.since of the sum that it is part of
	moved     bool    // it has alarmed since then
	risen     float64 // log units that its calls stand above them, open episode not counted
	learntAt  uint64  // detector's call with which the first of these changes began
	wellAt    uint64  // call of the communicator behind which no change is known that has ended
	after     [recentCalls + evidenceCalls]deviation
	taken     int // in after
	excursion int // of these, the first so many made the alarm: they are high by selection
	alarmed   bool
	most      float64 // the most that shift has said: calls behind the end of a fault come among the others
	longest   uint8   // queue of those in after
	kinds     []shift // that shift told apart: scratch
	summed    shift   // what shift gave when taken and excursion were summedAt: most buckets have no new call between two judgements
	summedAt  [2]int
}

// sighting is one call as it was seen; logarithms of ns.
type sighting struct {
	call    uint64 // of the communicator
	atNs    state.Ns
	key     expectationKey
	signal  float64
	counter float64 // 0: not measured
}

// deviation is one call against a frozen expectation.
type deviation struct {
	signal       float64 // log ratios
	counter      float64
	counterKnown bool
	before       float64 // expected signal, log ns
	beforeCount  float64 // expected counter, likewise, if it is known
	expectedBy   float64 // calls that the expectation rests on
	queue        uint8   // puts that there may be in its queue
}

func (e *evidence) remember(call uint64, o state.Observation) sighting {
	s := sighting{call: call, atNs: o.AtNs, key: keyOf(o), signal: math.Log(float64(o.SignalNs))}
	if o.CounterNs > 0 && o.CounterNs <= maxPlausibleNs {
		s.counter = math.Log(float64(o.CounterNs))
	}
	e.recent[e.seen%recentCalls] = s
	e.seen++
	return s
}

// newest is the latest of them.
func (e *evidence) newest() *sighting { return &e.recent[(e.seen-1)%recentCalls] }

// fresh counts calls since the change that the alarm does not rest on.
func (e *evidence) fresh() int { return e.taken - e.excursion }

// callsAgo gives the communicator's call that was this bucket's n-th last, as far back as is remembered.
func (e *evidence) callsAgo(n int, now uint64) uint64 {
	n = min(n, e.seen, recentCalls)
	if n == 0 {
		return now
	}
	return e.recent[(e.seen-n)%recentCalls].call
}

// start takes the remembered calls since the change as first evidence against the frozen expectations. The calls before
// it correct them where a detector has not found a small shift yet: that shift is older than this change.
func (e *evidence) start(since uint64) {
	e.taken, e.excursion, e.summedAt, e.most, e.longest = 0, 0, [2]int{}, 0, 1
	for i := range e.frozen {
		if q := e.queue(e.frozen[i].key.action); !slices.ContainsFunc(e.frozen[:i], func(r reference) bool { return e.queue(r.key.action) == q }) {
			e.correct(since, q)
		}
	}
	for i := max(0, e.seen-recentCalls); i < e.seen; i++ {
		if s := e.recent[i%recentCalls]; s.call >= since {
			e.take(s)
		}
	}
}

// correct moves the frozen expectations of calls with queues of one length to what those remembered from before the change were.
func (e *evidence) correct(since uint64, queue uint8) {
	var signal, counter [recentCalls]float64
	n, counted := 0, 0
	for i := max(0, e.seen-recentCalls); i < e.seen; i++ {
		s := e.recent[i%recentCalls]
		if r := e.reference(s.key); r != nil && s.call > e.wellAt && s.call < since && e.queue(s.key.action) == queue {
			signal[n] = s.signal - r.signal
			n++
			if s.counter != 0 && r.counter != 0 {
				counter[counted] = s.counter - r.counter
				counted++
			}
		}
	}
	if n < staleCalls {
		return
	}
	stale, moved := medianOf(signal[:n]), medianOf(counter[:counted])
	if math.Abs(stale) <= minLogShift {
		return
	}
	for i := range e.frozen {
		if r := &e.frozen[i]; e.queue(r.key.action) == queue {
			r.signal, r.expectedBy = r.signal+stale, math.Min(r.expectedBy, float64(n))
			if r.counter != 0 && counted >= staleCalls {
				r.counter += moved
			}
		}
	}
}

func (e *evidence) reference(key expectationKey) *reference { return referenceIn(e.frozen, key) }

func referenceIn(among []reference, key expectationKey) *reference {
	for i := range among {
		if among[i].key == key {
			return &among[i]
		}
	}
	return nil
}

// take compares one call with the frozen expectations; false when there is none or the evidence is complete.
func (e *evidence) take(s sighting) bool {
	r := e.reference(s.key)
	if r == nil || e.fresh() >= evidenceCalls || e.taken == len(e.after) {
		return false
	}
	v := deviation{signal: s.signal - r.signal, before: r.signal, expectedBy: r.expectedBy, queue: e.queue(s.key.action)}
	if s.counter != 0 && r.counter != 0 {
		v.counter, v.beforeCount, v.counterKnown = s.counter-r.counter, r.counter, true
	}
	e.after[e.taken], e.longest = v, max(e.longest, v.queue)
	e.taken++
	return true
}

// same says whether an alarm tells of the change of the open episode, which has the given direction and whose latest
// alarm was in call lastAlarm. Small shifts are found late, and detectors that start afresh after an alarm may alarm on
// a level that the episode knows already.
func (e *evidence) same(a Alarm, up bool, lastAlarm, now uint64) bool {
	first := a.Up == up && !e.alarmed
	if first && e.callsAgo(a.Calls, now) <= lastAlarm {
		return true
	}
	earlier := e.taken - a.Calls
	if earlier < sameChangeCalls {
		return first
	}
	r := e.reference(e.newest().key)
	if r == nil || a.Signal.AfterNs == 0 {
		return false
	}
	var buf [len(e.after)]float64
	for i := range earlier {
		buf[i] = e.after[i].signal
	}
	known := r.signal + medianOf(buf[:earlier])
	return math.Abs(math.Log(a.Signal.AfterNs)-known) <= math.Max(minLogShift, math.Abs(math.Log(a.Signal.Ratio()))*selected)
}
