package agents

import (
	"fmt"
	"math"

	"dynamiccl/state"
)

// evidenceCalls is how many calls of a bucket after a change are looked at: enough to tell a few percent apart at 5%
// noise, few enough that a second change rarely falls among them.
const evidenceCalls = 32

// recentCalls is how many calls of a bucket are remembered from before an alarm: a detector needs about ten calls to
// find a step, and in these the other buckets have seen it too.
const recentCalls = 24

// Verdict is what a Diagnoser thinks after a call.
type Verdict struct {
	Diagnosis Diagnosis
	New       bool  // a change began with this call, or the diagnosis is another one than after the call before
	Rank      int32 // the late rank, -1: no single one
	LateNs    state.Ns
	Buckets   int     // that the diagnosis rests on
	Calls     int     // after the change, that it rests on
	Signal    float64 // ratio after over before, geometric mean over buckets; 1 when unknown
	Counter   float64 // likewise; 0: not measured
	AddedNs   float64 // to the signal, at the smallest size that is there
	AtBytes   float64 // that size
}

func (v Verdict) String() string {
	if v.Diagnosis == DiagnosisSlowRank {
		return fmt.Sprintf("%s: rank %d arrives last, typically %.1f us after the first", v.Diagnosis, v.Rank, float64(v.LateNs)/1e3)
	}
	if v.Buckets == 0 {
		return v.Diagnosis.String()
	}
	s := fmt.Sprintf("%s: signal %.2fx", v.Diagnosis, v.Signal)
	if v.Counter > 0 {
		s += fmt.Sprintf(", counter %.2fx", v.Counter)
	}
	return s + fmt.Sprintf(", %+.1f us at %s, %d calls of %d sizes or collectives", v.AddedNs/1e3,
		state.FormatBytes(uint64(v.AtBytes)), v.Calls, v.Buckets)
}

// Diagnoser says why the costs of one communicator changed. One alarm opens an episode: expectations of every bucket are
// frozen, and calls since the change are compared with them, also in buckets without an alarm (that 1 MiB did not change
// is what tells a constant from growth). A change in the other direction, or an alarm in a bucket whose evidence is
// complete, opens the next episode.
type Diagnoser struct {
	buckets map[state.Bucket]*evidence
	order   []*evidence // iteration in order of appearance: the same calls give the same verdict
	calls   uint64
	open    bool
	up      bool
	since   uint64 // call with which the change began
	late    lateRanks
	slow    int32 // rank of the slow-rank finding in force, -1: none
	verdict Verdict
	shifts  []shift // scratch
}

// NewDiagnoser makes the diagnoser of one communicator.
func NewDiagnoser() *Diagnoser {
	return &Diagnoser{buckets: map[state.Bucket]*evidence{}, slow: -1, verdict: Verdict{Rank: -1, Signal: 1}}
}

// evidence is one bucket's part: the last calls, and the calls since the change against frozen expectations.
type evidence struct {
	detector *Detector
	bytes    float64
	recent   [recentCalls]sighting
	seen     int // sightings ever stored in recent
	frozen   []reference
	after    [evidenceCalls]sighting
	taken    int
	alarmed  bool
}

// sighting is one call against its expectation; all logarithms.
type sighting struct {
	call         uint64
	signal       float64
	counter      float64
	counterKnown bool
	before       float64 // expected signal, log ns
	expectedBy   float64
}

// Observe takes in one call of bucket b, already shown to its detector, which answered a.
func (d *Diagnoser) Observe(b state.Bucket, det *Detector, o state.Observation, a Alarm) Verdict {
	d.calls++
	e := d.buckets[b]
	if e == nil {
		e = &evidence{}
		d.buckets[b] = e
		d.order = append(d.order, e)
	}
	e.detector = det
	if o.SignalNs <= 0 || o.SignalNs > maxPlausibleNs {
		d.verdict.New = false
		return d.verdict
	}
	if o.Bytes > 0 {
		e.bytes = float64(o.Bytes)
	} else {
		e.bytes = math.Exp2(float64(b.Log2Bytes))
	}
	if r := a.Residual; r.Known {
		e.recent[e.seen%recentCalls] = sighting{d.calls, r.Signal, r.Counter, r.CounterKnown, math.Log(r.BeforeNs), r.expectedBy}
		e.seen++
	}
	d.late.add(d.calls, o)

	last := d.verdict.Diagnosis
	d.verdict.New = false
	switch {
	case a.Raised && d.open && a.Up == d.up && e.taken < evidenceCalls:
		d.join(e, o, a)
		d.judge()
	case a.Raised:
		d.begin(e, a)
		d.judge()
		d.verdict.New = true
	case d.open && e.take(d.calls, o):
		d.judge()
	case d.calls%lateCheckCalls == 0:
		d.judgeRanks()
	}
	d.verdict.New = d.verdict.New || d.verdict.Diagnosis != last
	return d.verdict
}

// begin opens an episode with the alarm of e.
func (d *Diagnoser) begin(e *evidence, a Alarm) {
	d.open, d.up = true, a.Up
	d.since = e.callsAgo(a.Calls, d.calls)
	for _, other := range d.order {
		other.alarmed, other.taken = other == e, 0
		if other == e {
			other.frozen = append(other.frozen[:0], e.detector.before...)
		} else {
			other.frozen = other.detector.appendReferences(other.frozen[:0])
		}
		other.takeSince(d.since)
	}
}

// join adds the alarm of a bucket to the open episode. A bucket that was still warming up when the episode began has no
// frozen expectation; then the one of its own alarm serves.
func (d *Diagnoser) join(e *evidence, o state.Observation, a Alarm) {
	e.alarmed = true
	if len(e.frozen) == 0 {
		e.frozen = append(e.frozen[:0], e.detector.before...)
		e.taken = 0
		e.takeSince(e.callsAgo(a.Calls, d.calls))
		return
	}
	e.take(d.calls, o)
}

// callsAgo gives the communicator's call that was this bucket's n-th last, as far back as is remembered.
func (e *evidence) callsAgo(n int, now uint64) uint64 {
	n = min(n, e.seen, recentCalls)
	if n == 0 {
		return now
	}
	return e.recent[(e.seen-n)%recentCalls].call
}

func (e *evidence) takeSince(call uint64) {
	for i := max(0, e.seen-recentCalls); i < e.seen; i++ {
		if s := e.recent[i%recentCalls]; s.call >= call && e.taken < evidenceCalls {
			e.after[e.taken] = s
			e.taken++
		}
	}
}

// take compares one call with the frozen expectations; false when there is none or the evidence is complete.
func (e *evidence) take(call uint64, o state.Observation) bool {
	if e.taken == evidenceCalls {
		return false
	}
	key := keyOf(o)
	for _, r := range e.frozen {
		if r.key != key {
			continue
		}
		s := sighting{call: call, signal: math.Log(float64(o.SignalNs)) - r.signal, before: r.signal, expectedBy: r.expectedBy}
		if r.counter != 0 && o.CounterNs > 0 && o.CounterNs <= maxPlausibleNs {
			s.counter, s.counterKnown = math.Log(float64(o.CounterNs))-r.counter, true
		}
		e.after[e.taken] = s
		e.taken++
		return true
	}
	return false
}

// judge makes the verdict of the open episode from what is there.
func (d *Diagnoser) judge() {
	d.shifts = d.shifts[:0]
	v := Verdict{Diagnosis: DiagnosisUnknown, Rank: -1, Signal: 1}
	complete := true
	for _, e := range d.order {
		if s, ok := e.shift(); ok {
			d.shifts = append(d.shifts, s)
			v.Calls += e.taken
			complete = complete && e.taken == evidenceCalls
		}
	}
	if len(d.shifts) > 0 {
		v.describe(d.shifts)
		v.Diagnosis = classify(d.shifts, d.up, complete)
	}
	if d.up && d.slow < 0 {
		if rank, lateNs, ok := d.late.dominant(d.since, lateEpisodeCalls); ok {
			d.slow = rank
			v.Diagnosis, v.Rank, v.LateNs = DiagnosisSlowRank, rank, lateNs
		}
	} else if d.verdict.Diagnosis == DiagnosisSlowRank && d.up {
		v.Diagnosis, v.Rank, v.LateNs = DiagnosisSlowRank, d.verdict.Rank, d.verdict.LateNs // found in this episode
	}
	v.New = d.verdict.New
	d.verdict = v
}

// judgeRanks looks for a late rank where no cost changed: waiting for a rank is never charged to a choice, so the
// detectors do not see it.
func (d *Diagnoser) judgeRanks() {
	rank, lateNs, ok := d.late.dominant(0, lateWindow/2)
	switch {
	case ok && rank != d.slow:
		d.slow = rank
		d.verdict = Verdict{Diagnosis: DiagnosisSlowRank, Rank: rank, LateNs: lateNs, Signal: 1}
	case d.slow >= 0 && d.late.gone(d.slow):
		d.slow = -1
		if d.verdict.Diagnosis == DiagnosisSlowRank {
			d.verdict = Verdict{Diagnosis: DiagnosisRecovered, Rank: -1, Signal: 1}
		}
	}
}
