package agents

import (
	"cmp"
	"math"
	"slices"

	"dynamiccl/state"
)

// A way alarms by itself when its puts are further off than chance gets once in 100,000: seven in a row at least, for no put says more than
// three standard deviations, of kinds of which sixteen are known. A program that leaves a slow link makes fewer than that on most ways, and
// goes on by one context alone. But where a way between the same ranks has its diagnosis, what puts of the others would take under the same
// fault is known, and that these have it, too, is no less likely than not. So a beginning is a choice of two there, as an end is
// (diagnose_back.go), and asks for no more than a diagnosis does.
const sharedOdds = decisiveLogOdds * togetherNoise // as odds of sums that vary so much more than independent ones

// tells says that it has a diagnosis which says what each size takes.
func (d *Diagnoser) tells() bool { return d.open && d.up && d.decided && d.added.most > 0 }

// shares gives the alarm of a way that is quiet, where its latest calls are by those odds of what a way beside it tells.
func (d *Diagnoser) shares() Alarm {
	if !d.Quiet() || d.calls == 0 {
		return Alarm{}
	}
	for _, other := range d.beside {
		if !other.tells() {
			continue
		}
		if det, calls := d.newest().detector, d.likeBeside(other); calls > 0 && det.lastSlot < len(det.actions) {
			d.like = other
			return det.trip(true, calls)
		}
	}
	return Alarm{}
}

// joinBeside begins an episode by the word of another way, with the alarm of e that this has raised.
func (d *Diagnoser) joinBeside(e *evidence, a Alarm) {
	d.begin(e, a)
	d.added = d.like.added
	d.verdict.New, d.verdict.Joined = true, true
	d.judge()
}

// newest is the evidence of the size that was put last.
func (d *Diagnoser) newest() *evidence {
	return d.order[slices.IndexFunc(d.order, func(e *evidence) bool { return e.newest().call == d.calls })]
}

// likeBeside gives for how many calls up to the last one this way has been as the other one tells, from about when that began; 0: it is not.
func (d *Diagnoser) likeBeside(other *Diagnoser) int {
	calls := d.offs[:0]
	for _, e := range d.order {
		d.expects = e.detector.appendReferences(d.expects[:0])
		for i := max(0, e.seen-recentCalls); i < e.seen; i++ {
			s := e.recent[i%recentCalls]
			if r := referenceIn(d.expects, s.key); r != nil && s.call > e.wellAt && s.atNs >= other.sinceNs-besideNs {
				calls = append(calls, off{s.call, other.added.odds(e, s, r)})
			}
		}
	}
	d.offs = calls
	slices.SortFunc(calls, func(a, b off) int { return cmp.Compare(a.call, b.call) })
	sum, since := 0.0, uint64(0)
	for _, c := range calls {
		if sum == 0 {
			since = c.call
		}
		sum = math.Max(0, sum+c.z)
	}
	if sum < sharedOdds {
		return 0
	}
	return int(d.calls - since + 1)
}

// odds are the log odds of a call between what is added and what was expected of it. One beyond both says nothing: it is neither's.
func (a added) odds(e *evidence, s sighting, r *reference) float64 {
	before := math.Exp(r.signal)
	least, most := a.least, a.most*float64(e.queue(s.key.action))
	if a.perByte { // all CTAs of a call put over the one link that is slow
		least, most = a.least*e.bytes, a.most*e.bytes*math.Max(1, float64(s.key.action.Channels))
	}
	least, most = math.Log1p(math.Max(0, least/before)), math.Log1p(math.Max(0, most/before))
	sigma := math.Max(math.Sqrt(r.levels[0].variance*(1+1/r.expectedBy)), e.detector.leastScale(s.key.action))
	is := s.signal - r.signal
	if least < 2*minLogShift || is-most > backReach*sigma {
		return 0
	}
	beyond := math.Max(0, math.Max(least-is, is-most))
	return clamp((sq(is/sigma)-sq(beyond/sigma))/2, backMost)
}

// begunAt is when the call was made with which the open episode began.
func (d *Diagnoser) begunAt() state.Ns {
	at := d.alarmNs
	for _, e := range d.order {
		for i := max(0, e.seen-recentCalls); i < e.seen; i++ {
			if s := &e.recent[i%recentCalls]; s.call >= d.since {
				at = min(at, s.atNs)
			}
		}
	}
	return at
}

// takeOver has a way that began by another one's word say what that one does, where its own calls leave it unknown, and what they show.
func (d *Diagnoser) takeOver(v *Verdict) {
	if d.like == nil || v.Diagnosis != DiagnosisUnknown || !d.like.tells() {
		return
	}
	v.Diagnosis = d.like.verdict.Diagnosis
	if v.Buckets > 0 {
		return
	}
	few := d.shifts[len(d.shifts):] // of sizes that have no say by themselves
	for _, e := range d.order {
		if e.taken > 0 {
			s := sumOf(e.after[:e.taken])
			s.bytes = e.bytes
			few = append(few, s)
			v.Calls += e.taken
		}
	}
	if len(few) > 0 {
		v.describe(few)
	}
}
