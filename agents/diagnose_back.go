package agents

import (
	"math"
	"slices"
)

// What puts cost before a fault is known, and what they cost under it, too: so its end is a choice of two, which a sum of log odds over
// all sizes decides within some ten calls. It asks nothing of detectors, which learn anew under a fault: a program leaves a slow link within
// a few calls, and sixteen of which half were made under the fault and half behind it expect neither. Nor does it ask for sizes that the
// program has left.

const (
	// backOdds says that costs are back: chance gets so far once in exp(20) calls if they are independent, in exp(10) where sums
	// vary twice as much.
	backOdds = 20.0

	backMost  = 2.0 // that one call says: ten in a row are enough
	backReach = 3.0 // standard deviations above what was expected, beyond which a call is none of those
)

// back is that sum, a CUSUM: it begins with the call that makes the end likeliest.
type back struct {
	odds         float64
	calls, sizes int    // that it rests on
	since        uint64 // call of the first
}

// underFault is how far the first calls of a kind under a fault lay above what was expected of it. A kind of which sixteen calls were seen
// may have been expected to cost what it seldom does: that of others tells nothing of it.
type underFault struct {
	key   expectationKey
	n     int
	above [warmUpCalls]float64
}

// shown gives how far calls of a kind have risen under the fault, where enough of them were seen.
func (e *evidence) shown(key expectationKey) (rise float64, known bool) {
	for i := range e.under {
		if u := &e.under[i]; u.key == key && u.n >= minShiftCalls {
			buf := u.above
			return medianOf(buf[:u.n]), true
		}
	}
	return 0, false
}

// learn takes in a call under the fault.
func (e *evidence) learn(s sighting, r *reference) {
	at := slices.IndexFunc(e.under, func(u underFault) bool { return u.key == s.key })
	if at < 0 {
		at = len(e.under)
		e.under = append(e.under, underFault{key: s.key})
	}
	if u := &e.under[at]; u.n < len(u.above) {
		u.above[u.n] = s.signal - r.signal
		u.n++
	}
}

// learnSince takes in the remembered calls since costs rose first, up to one that isBack has to come to yet.
func (e *evidence) learnSince(since, until uint64) {
	e.under = e.under[:0]
	for i := max(0, e.seen-recentCalls); i < e.seen; i++ {
		s := e.recent[i%recentCalls]
		if r := referenceIn(e.healthy, s.key); r != nil && s.call >= since && s.call < until {
			e.learn(s, r)
		}
	}
}

// isBack takes in one call since costs rose first, and says whether they are what they were.
func (d *Diagnoser) isBack(e *evidence, s sighting) (Verdict, bool) {
	if !d.open || !d.up && d.risen == 0 {
		return Verdict{}, false
	}
	r := referenceIn(e.healthy, s.key)
	if r == nil {
		return Verdict{}, false
	}
	own, known := e.shown(s.key)
	if d.up {
		e.learn(s, r)
	}
	if !d.verdict.Diagnosis.rise() || d.verdict.Diagnosis == DiagnosisCPUContention { // where cores are short some calls are as ever
		d.back = back{}
		return Verdict{}, false
	}
	if !known {
		own, _ = d.foretells(e, r)
	}
	if own < 2*minLogShift {
		return Verdict{}, false
	}
	sigma := math.Max(math.Sqrt(r.levels[0].variance*(1+1/r.expectedBy)), e.detector.leastScale(s.key.action))
	z, rise := (s.signal-r.signal)/sigma, own/sigma
	odds := rise * (rise/2 - z)
	if z > backReach { // a link of 0.2 GB/s makes some puts three times as long and others thirty times: the less are not near the former
		odds = math.Min(odds, -rise*rise/2)
	}
	if d.back.calls++; d.back.calls == 1 {
		d.back.since = d.calls
	}
	if e.toldSince != d.back.since {
		e.toldSince = d.back.since
		d.back.sizes++
	}
	if d.back.odds += clamp(odds, backMost); d.back.odds <= 0 {
		d.back = back{}
	}
	v := Verdict{Diagnosis: DiagnosisRecovered, Rank: -1, Buckets: d.back.sizes, Calls: d.back.calls, Signal: math.Exp(-own), AtBytes: e.bytes,
		AddedNs: math.Exp(r.signal) * (1 - math.Exp(own))}
	return v, d.back.odds >= backOdds
}
