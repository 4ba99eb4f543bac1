package agents

import (
	"math"
	"slices"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// maxExpectations bounds the expectations of one bucket; the one unused for longest goes first.
const maxExpectations = 64

// maxPlausibleNs: a longer call is a hang or a broken clock, not a cost (NCCL's own watchdogs are shorter).
const maxPlausibleNs state.Ns = 1000 * 1e9

// residual is how far one call is from what was expected of its action, as natural logarithms of ratios.
type residual struct {
	signal       float64
	counter      float64
	counterKnown bool
}

// Change is a latency before and after; zeros mean not measured.
type Change struct{ BeforeNs, AfterNs float64 }

// Ratio is after over before, 1 when not measured.
func (c Change) Ratio() float64 {
	if c.BeforeNs == 0 {
		return 1
	}
	return c.AfterNs / c.BeforeNs
}

// Alarm is what the detector says about one call. The other fields mean something only when Raised is set.
type Alarm struct {
	Raised    bool
	Up        bool // costs rose
	BySignal  bool // the signal's chart crossed its threshold
	ByCounter bool // likewise the counter's; both may be set
	Calls     int  // calls since the change began, by estimate
	Together  int  // likewise of all sizes of a way, where these raised it together
	Signal    Change
	Counter   Change
}

// Stat is the state of the charts: the larger of two sides as a fraction of the threshold, 1 is an alarm.
type Stat struct{ Counter, Signal float64 }

// Detector watches one bucket of one communicator: two-sided CUSUM on standardised log residuals of counter and signal.
//
// A change of action is no change of the fabric: every action (and quarter of the bucket's size range, since a call of
// twice the bytes may take twice the time) has its own expectation, and warms up before it counts. After an alarm all
// expectations start afresh, but not what is known of the noise; behind a fault those before it are put back. Run lengths are
// stated for independent residuals; time and order of clocks play no role.
type Detector struct {
	design   Design
	signal   chart
	counter  chart
	actions  []actionExpectation
	before   []reference // expectations as they were at the last alarm
	calls    uint64
	ignored  uint64
	lastSlot int
	puts     bool // of single puts over GIN, not of calls
	latest   struct {
		z     float64 // standardised residual of the signal
		n     float64 // calls behind what it was held against
		known bool
	}
}

// expectationKey: which calls are expected to cost the same.
type expectationKey struct {
	action  actions.Action
	quarter uint8 // of the bucket's size range
}

type actionExpectation struct {
	key     expectationKey
	usedAt  uint64
	signal  expectation
	counter expectation
}

// reference is an expectation at rest.
type reference struct {
	key        expectationKey
	signal     float64 // log ns
	counter    float64 // log ns, 0: not measured
	expectedBy float64
	levels     [2]level // of signal and counter, as they were
}

// NewDetector makes the detector of one bucket.
func NewDetector(d Design) *Detector { return &Detector{design: d} }

// NewPutDetector makes the detector of one size of puts over GIN.
func NewPutDetector(d Design) *Detector {
	p := &Detector{design: d, puts: true}
	p.signal.noise.least, p.counter.noise.least = putNoise, putNoise
	return p
}

// putNoise is what sums of puts are taken to vary more than independent ones before anything is measured. Those that are timed come in
// twos to fours within a millisecond, in which the card and its queue are in one state. Of two live programs, sums of 16 vary 0.7 to 3.4
// times as much, and a measurement that is beyond doubt takes longer than a first false alarm.
const putNoise = 1.5

// crowdedLogScale is the least deviation that is believed of a put whose context several CTAs of its kernel share. It is the second,
// third or fourth in the queue as it comes: 16 CTAs on 4 contexts take 5, 8, 11 or 14 us to the counter on 2x H200, and the 16 calls
// of a warm-up may well have had one of these alone.
const crowdedLogScale = 0.25

func (d *Detector) leastScale(a actions.Action) float64 {
	if d.puts && a.Contexts > 0 && a.Channels > a.Contexts {
		return crowdedLogScale
	}
	return d.design.minLogScale
}

// FabricNoise is one communicator's: see Share.
type FabricNoise struct{ signal, counter sharedNoise }

// Share lets the detector learn of noise that is not independent from other buckets, and they from it.
func (d *Detector) Share(with *FabricNoise) {
	d.signal.noise.fabric, d.counter.noise.fabric = &with.signal, &with.counter
}

// Ignored counts latencies that no clock can mean: zero, negative or longer than a thousand seconds.
func (d *Detector) Ignored() uint64 { return d.ignored }

// Stat tells how near an alarm is.
func (d *Detector) Stat() Stat {
	return Stat{Counter: d.counter.height(), Signal: d.signal.height()}
}

// Warming says that too few calls of the action observed last were seen to expect anything of it.
func (d *Detector) Warming() bool {
	return d.lastSlot < len(d.actions) && !d.actions[d.lastSlot].signal.ready()
}

// Observe takes in one group call. It allocates only when an action is seen for the first time.
func (d *Detector) Observe(o state.Observation) Alarm {
	d.latest.known = false
	if o.SignalNs <= 0 || o.SignalNs > maxPlausibleNs {
		d.ignored++
		return Alarm{}
	}
	counted := o.CounterNs > 0 && o.CounterNs <= maxPlausibleNs
	if !counted && o.CounterNs != 0 { // 0 says "not measured", which is no fault
		d.ignored++
	}
	d.calls++
	e := d.slot(keyOf(o))
	e.usedAt = d.calls

	logSignal, logCounter := math.Log(float64(o.SignalNs)), 0.0
	if counted {
		logCounter = math.Log(float64(o.CounterNs))
	}
	var a Alarm
	var r residual
	known, least := e.signal.ready(), d.leastScale(o.Action)
	d.latest.known, d.latest.n = known, e.signal.n
	if known {
		r.signal = logSignal - e.signal.mean
		a.BySignal = d.signal.step(&e.signal, logSignal, d.design.k, d.design.signalH, least)
		d.latest.z = d.signal.latest
	} else {
		e.signal.warmUp(logSignal)
	}
	switch {
	case counted && e.counter.ready():
		r.counter, r.counterKnown = logCounter-e.counter.mean, true
		a.ByCounter = d.counter.step(&e.counter, logCounter, d.design.k, d.design.counterH, least)
	case counted:
		e.counter.warmUp(logCounter)
	}
	if known {
		d.signal.up.add(r)
		d.signal.down.add(r)
		d.counter.up.add(r)
		d.counter.down.add(r)
	}
	if d.puts && a.ByCounter && !a.BySignal && !d.signal.goesWith(&d.counter) {
		a.ByCounter = false
		d.counter.top()
	}
	if a.BySignal || a.ByCounter {
		d.alarm(&a, e)
	}
	return a
}

// alarm fills in a and starts afresh. The signal's chart speaks first: it is what a choice is charged.
func (d *Detector) alarm(a *Alarm, e *actionExpectation) {
	c := &d.signal
	if !a.BySignal {
		c = &d.counter
	}
	a.Up = c.up.sum >= c.down.sum
	d.raise(a, e, c)
}

// raise is alarm where it is known which way costs went.
func (d *Detector) raise(a *Alarm, e *actionExpectation, c *chart) {
	s := &c.down
	if a.Up {
		s = &c.up
	}
	a.Raised, a.Calls = true, s.calls
	if s.calls > 0 && e.signal.ready() {
		a.Signal.BeforeNs = math.Exp(e.signal.mean)
		a.Signal.AfterNs = a.Signal.BeforeNs * math.Exp(s.signal/float64(s.calls))
	}
	if s.counted > 0 && e.counter.ready() {
		a.Counter.BeforeNs = math.Exp(e.counter.mean)
		a.Counter.AfterNs = a.Counter.BeforeNs * math.Exp(s.counter/float64(s.counted))
	}
	d.before = d.appendReferences(d.before[:0])
	d.actions = d.actions[:0]
	d.lastSlot = 0
	d.signal.restart()
	d.counter.restart()
}

// Trip raises the alarm that the signal's chart is on its way to: whoever calls it has another reason to be sure that
// costs of the action observed last have changed. Nothing observed: no alarm.
func (d *Detector) Trip() Alarm {
	if d.lastSlot >= len(d.actions) {
		return Alarm{}
	}
	a := Alarm{BySignal: true}
	d.alarm(&a, &d.actions[d.lastSlot])
	return a
}

// trip is Trip where all sizes together tell which way costs went, and since how many of their calls.
func (d *Detector) trip(up bool, together int) Alarm {
	a := Alarm{BySignal: true, Up: up, Together: together}
	d.raise(&a, &d.actions[d.lastSlot], &d.signal)
	return a
}

// appendReferences adds the present expectations to dst.
func (d *Detector) appendReferences(dst []reference) []reference {
	for i := range d.actions {
		e := &d.actions[i]
		if !e.signal.ready() {
			continue
		}
		r := reference{key: e.key, signal: e.signal.middle, expectedBy: e.signal.n, levels: [2]level{e.signal.level, e.counter.level}}
		if e.counter.ready() {
			r.counter = e.counter.middle
		}
		dst = append(dst, r)
	}
	return dst
}

// unlearn drops what was learnt since that call, and puts back what was expected of the same calls before.
func (d *Detector) unlearn(since uint64, before []reference) {
	d.actions = slices.DeleteFunc(d.actions, func(e actionExpectation) bool { return e.usedAt > since })
	for i := range before {
		r := &before[i]
		if len(d.actions) == maxExpectations || slices.ContainsFunc(d.actions, func(e actionExpectation) bool { return e.key == r.key }) {
			continue
		}
		e := actionExpectation{key: r.key, usedAt: since}
		e.signal.level.restore(r.levels[0])
		e.counter.level.restore(r.levels[1])
		d.actions = append(d.actions, e)
	}
	d.lastSlot = len(d.actions)
	d.signal.restart()
	d.counter.restart()
}

// slot finds or makes the expectation of a key. Calls mostly repeat the action of the call before.
func (d *Detector) slot(k expectationKey) *actionExpectation {
	if d.lastSlot < len(d.actions) && d.actions[d.lastSlot].key == k {
		return &d.actions[d.lastSlot]
	}
	oldest := 0
	for i := range d.actions {
		if d.actions[i].key == k {
			d.lastSlot = i
			return &d.actions[i]
		}
		if d.actions[i].usedAt < d.actions[oldest].usedAt {
			oldest = i
		}
	}
	if len(d.actions) < maxExpectations {
		d.actions = append(d.actions, actionExpectation{})
		oldest = len(d.actions) - 1
	}
	d.actions[oldest] = actionExpectation{key: k}
	d.lastSlot = oldest
	return &d.actions[oldest]
}

// keyOf splits a bucket's range of sizes (a factor of two) in four.
func keyOf(o state.Observation) expectationKey {
	k := expectationKey{action: o.Action}
	if i, ok := state.SizeBucket(o.Bytes); ok && i >= 2 {
		k.quarter = uint8(o.Bytes>>(i-2)) & 3
	}
	return k
}
