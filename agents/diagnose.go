package agents

import (
	"fmt"
	"math"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// Verdict is what a Diagnoser thinks after a call.
type Verdict struct {
	Diagnosis Diagnosis
	New       bool  // a change began with this call, or the diagnosis is another one than after the call before
	Rank      int32 // the late rank, -1: no single one
	LateNs    state.Ns
	Joined    bool    // likewise, by what a way beside this one tells
	Buckets   int     // that the diagnosis rests on
	Calls     int     // after the change, that it rests on
	Signal    float64 // ratio after over before, geometric mean over buckets; 1 when unknown
	Counter   float64 // likewise; 0: not measured
	AddedNs   float64 // to the signal, at the smallest size that is there
	AtBytes   float64 // that size
}

func (v Verdict) String() string {
	if v.Diagnosis != DiagnosisSlowRank && v.Buckets == 0 {
		return v.Diagnosis.String()
	}
	return v.Diagnosis.String() + ": " + v.Detail()
}

// Detail is String without the diagnosis's name in front of what it rests on; where it rests on nothing, the name.
func (v Verdict) Detail() string {
	if v.Diagnosis == DiagnosisSlowRank {
		return fmt.Sprintf("rank %d arrives last, typically %.1f us after the first", v.Rank, float64(v.LateNs)/1e3)
	}
	if v.Buckets == 0 {
		return v.Diagnosis.String()
	}
	s := fmt.Sprintf("signal %.2fx", v.Signal)
	if v.Counter > 0 {
		s += fmt.Sprintf(", counter %.2fx", v.Counter)
	}
	return s + fmt.Sprintf(", %+.1f us at %s, %d calls of %d sizes or collectives", v.AddedNs/1e3,
		state.FormatBytes(uint64(v.AtBytes)), v.Calls, v.Buckets)
}

// Diagnoser says why the costs of one communicator changed. One alarm opens an episode: expectations of every bucket are
// frozen, and calls since the change are compared with them, also in buckets without an alarm (that 1 MiB did not change
// is what tells a constant from growth). An alarm that tells more than the episode knows already opens the next one.
//
// Without a second size a constant and growth cannot be told apart, and the diagnosis is unknown. Two more things it
// cannot know: whether calls got faster because the fabric did or because the program sends less through it, and, where
// all sizes used take equally long (below some 16 KiB), a congestion of queues from a slower backend: that is called
// backend-fallback. At the call of an alarm there are seldom enough calls for a diagnosis: it follows within some ten.
type Diagnoser struct {
	buckets   map[state.Bucket]*evidence
	order     []*evidence // iteration in order of appearance: the same calls give the same verdict
	calls     uint64
	open      bool
	up        bool
	since     uint64 // call with which the change began
	lastAlarm uint64 // call of the latest alarm
	decided   bool   // the episode has a diagnosis
	late      lateRanks
	slow      int32 // rank of the slow-rank finding in force, -1: none
	slowNs    state.Ns
	slowAt    uint64 // call with which it was found
	verdict   Verdict
	moved     float64  // log units that the open episode moved costs
	standing  Verdict  // before the open episode; back in force when the episode turns out to be nothing that lasts
	risen     float64  // log units that costs stand above those before the first change, open episode not counted
	shifts    []shift  // scratch
	offs      []off    // likewise
	added     added    // by what the open episode's diagnosis says
	alarmNs   state.Ns // of the alarm that opened the episode
	beside    []*Diagnoser
	pool      []pooled    // scratch of asking them
	like      *Diagnoser  // by whose word the open episode began; nil: an alarm of its own
	expects   []reference // scratch of asking that
	sinceNs   state.Ns    // when the open episode began
	back      back
}

// NewDiagnoser makes the diagnoser of one communicator.
func NewDiagnoser() *Diagnoser {
	nothing := Verdict{Rank: -1, Signal: 1}
	return &Diagnoser{buckets: map[state.Bucket]*evidence{}, slow: -1, verdict: nothing, standing: nothing}
}

// Observe takes in one call of bucket b, already shown to its detector, which answered a.
func (d *Diagnoser) Observe(b state.Bucket, det *Detector, o state.Observation, a Alarm) Verdict {
	d.verdict.New, d.verdict.Joined = false, false
	if o.SignalNs <= 0 || o.SignalNs > maxPlausibleNs {
		return d.verdict
	}
	d.calls++
	e := d.buckets[b]
	if e == nil {
		e = &evidence{bytes: math.Exp2(float64(b.Log2Bytes))}
		d.buckets[b] = e
		d.order = append(d.order, e)
	}
	e.detector = det
	if o.Bytes > 0 {
		e.bytes = float64(o.Bytes)
	}
	e.byGPU = o.Action.Backend == actions.BackendGDAKI && det.puts
	s := e.remember(d.calls, o)
	d.late.add(d.calls, o)

	last, joined := d.verdict.Diagnosis, false
	if !a.Raised {
		a = d.shares()
		joined = a.Raised
	}
	switch {
	case joined:
		d.joinBeside(e, a)
	case a.Raised && (!d.open || !e.same(a, d.up, d.lastAlarm, d.calls) && !d.foretold(e, a)):
		d.like = nil
		d.begin(e, a)
		d.judge()
		d.verdict.New = true
	case a.Raised:
		d.join(e, s, a)
		d.judge()
	case d.open && e.take(s) && (e.taken <= 8 || e.fresh()%4 == 0): // later calls change little by themselves
		d.judge()
	case d.open && !d.decided && d.calls%judgeLateCalls == 0: // some size may have stopped coming
		d.judge()
	}
	if v, is := d.isBack(e, s); is {
		d.isOver(v)
	} else if !a.Raised && d.calls%judgeLateCalls == 0 && d.open && d.verdict.Diagnosis.rise() && d.calls-d.since > overCalls {
		if v, is := d.over(d.calls-d.since > d.enoughCalls()); is {
			d.isOver(v)
		}
	}
	if a.Raised {
		d.lastAlarm = d.calls
	} else if d.calls%lateCheckCalls == 0 {
		d.judgeRanks()
	}
	d.verdict.New = d.verdict.New || d.verdict.Diagnosis != last
	return d.verdict
}

// isOver ends what is open without an alarm.
func (d *Diagnoser) isOver(v Verdict) {
	d.verdict, d.open, d.decided, d.risen, d.moved = v, false, false, 0, 0
	d.unlearn()
}

// begin opens an episode with the alarm of e.
func (d *Diagnoser) begin(e *evidence, a Alarm) {
	switch d.verdict.Diagnosis {
	case DiagnosisUnknown: // of no use later
	case DiagnosisRecovered:
		d.risen, d.moved = 0, 0
		fallthrough
	default:
		d.standing = d.verdict
	}
	for _, e := range d.order {
		e.risen = d.rise(e)
	}
	d.risen = math.Max(0, d.risen+d.moved)
	d.open, d.up, d.decided, d.moved, d.back, d.added = true, a.Up, false, 0, back{}, added{}
	d.since = e.callsAgo(a.Calls, d.calls)
	if a.Together > 0 {
		d.since = min(d.since, d.calls-uint64(a.Together)+1)
	}
	for _, other := range d.order {
		if other.alarmed = other == e; other.alarmed {
			other.frozen = append(other.frozen[:0], e.detector.before...)
		} else {
			other.frozen = other.detector.appendReferences(other.frozen[:0])
		}
	}
	d.since = d.onset(d.since, a.Up)
	d.alarmNs, d.sinceNs = e.newest().atNs, d.begunAt()
	for _, other := range d.order {
		other.start(d.since)
		if d.risen == 0 && a.Up {
			other.healthy, other.moved, other.risen = append(other.healthy[:0], other.frozen...), false, 0
			other.learntAt = other.detector.calls - uint64(other.taken)
			other.learnSince(d.since, d.calls)
		}
	}
	e.moved = e.moved || a.Up
	e.excursion = e.taken
}

// join adds the alarm of a bucket to the open episode. A bucket that was still warming up when the episode began has no
// frozen expectation; then the one of its own alarm serves.
func (d *Diagnoser) join(e *evidence, s sighting, a Alarm) {
	e.alarmed, e.moved = true, e.moved || a.Up
	if len(e.frozen) == 0 {
		e.frozen = append(e.frozen[:0], e.detector.before...)
		e.start(e.callsAgo(a.Calls, d.calls))
	} else {
		e.take(s)
	}
	if e.taken < a.Calls+sameChangeCalls {
		e.excursion = min(e.taken, a.Calls, recentCalls)
	}
}

// Quiet says that no change is in force or looked into.
func (d *Diagnoser) Quiet() bool {
	return d.verdict.Diagnosis == DiagnosisNone || d.verdict.Diagnosis == DiagnosisRecovered
}

// Undecided says that costs have changed and nobody knows how: more calls would tell.
func (d *Diagnoser) Undecided() bool { return d.open && !d.decided }

func (d *Diagnoser) enoughCalls() uint64 { return uint64(max(lateCalls, settledCalls*len(d.order))) }

// judge makes the verdict of the open episode from what is there.
func (d *Diagnoser) judge() {
	d.shifts = d.shifts[:0]
	v := Verdict{Diagnosis: DiagnosisUnknown, Rank: -1, Signal: 1}
	is := circumstances{up: d.up, risen: d.risen, settled: true, complete: true}
	late := d.calls-d.since > d.enoughCalls()
	for _, e := range d.order {
		full := late || e.fresh() >= evidenceCalls || d.calls-e.callsAgo(1, d.calls) > uint64(max(goneCalls, goneCallsEach*len(d.order)))
		if e.alarmed {
			is.fresh += e.fresh()
		}
		is.settled = is.settled && (e.fresh() >= settledCalls || !e.alarmed)
		if s, ok := e.shift(); ok {
			d.shifts = append(d.shifts, s)
			v.Calls += len(s.after)
			is.complete = is.complete && full
		}
	}
	if len(d.shifts) > 0 {
		v.describe(d.shifts)
		if v.Diagnosis = classify(d.shifts, is); v.Diagnosis == DiagnosisUnknown {
			v.Diagnosis = d.askBeside(is)
		}
	}
	d.takeOver(&v)
	d.moved = math.Log(v.Signal)
	switch {
	case !d.up:
	case d.slow >= 0 && d.slowAt+lateWindow > d.since: // one that was late long before explains no change
		v.Diagnosis, v.Rank, v.LateNs = DiagnosisSlowRank, d.slow, d.slowNs
	case d.slow < 0:
		if rank, lateNs, ok := d.late.dominant(d.since, lateEpisodeCalls); ok {
			d.slow, d.slowNs, d.slowAt = rank, lateNs, d.calls
			v.Diagnosis, v.Rank, v.LateNs = DiagnosisSlowRank, rank, lateNs
		} else if _, _, suspect := d.late.dominant(d.since, lateSuspectCalls); suspect && d.calls < d.since+lateWindow {
			v.Diagnosis = DiagnosisUnknown // the next calls tell whether it is chance
		}
	}
	switch v.Diagnosis {
	case DiagnosisNone:
		v, d.moved, d.decided = d.standing, 0, false
	case DiagnosisUnknown:
		if d.decided { // what was decisive once stays until something else is
			v.Diagnosis, v.Rank, v.LateNs = d.verdict.Diagnosis, d.verdict.Rank, d.verdict.LateNs
		}
	default:
		if v.Diagnosis == DiagnosisRecovered && (!d.decided || d.verdict.Diagnosis != DiagnosisRecovered) && d.risen > 0 {
			d.unlearn()
		}
		d.decided = true
	}
	v.New, v.Joined = d.verdict.New, d.verdict.Joined
	d.verdict = v
	d.measure()
}

// judgeRanks looks for a late rank where no cost changed: waiting for a rank is never charged to a choice, so the
// detectors do not see it.
func (d *Diagnoser) judgeRanks() {
	rank, lateNs, ok := d.late.dominant(0, lateWindow/2)
	switch {
	case ok && rank != d.slow:
		d.slow, d.slowNs, d.slowAt = rank, lateNs, d.calls
		d.verdict = Verdict{Diagnosis: DiagnosisSlowRank, Rank: rank, LateNs: lateNs, Signal: 1}
	case d.slow >= 0 && d.late.gone(d.slow):
		d.slow = -1
		if d.verdict.Diagnosis == DiagnosisSlowRank {
			d.verdict = Verdict{Diagnosis: DiagnosisRecovered, Rank: -1, Signal: 1}
		}
	}
}
