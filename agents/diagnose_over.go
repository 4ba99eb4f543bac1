package agents

import "math"

// A fault may end without an alarm: what came on top of it for a few calls has widened what detectors take for noise, or they
// have begun anew in the middle of it. So a diagnosis that costs rose is held against the latest calls of every bucket, and those
// that take what was expected before it by this share of the rise say that it is over.
const overShare = 0.6

// overCalls is how many calls of a communicator after a change its end is looked for.
const overCalls = 2 * settledCalls

// over gives the verdict where the latest calls say that the changes are gone: of the buckets that alarmed since costs were as ever.
// few: a part of them is enough. A single one may have been expected to cost what it seldom does, and where cores are short some calls
// are as ever all the while.
func (d *Diagnoser) over(few bool) (v Verdict, is bool) {
	v = Verdict{Diagnosis: DiagnosisRecovered, Rank: -1}
	rise, now, weights, moved := 0.0, 0.0, 0.0, 0
	for _, e := range d.order {
		if !e.moved || len(e.healthy) == 0 {
			continue
		}
		moved++
		above, variance, n := e.latest(d.since)
		if n == 0 {
			continue
		}
		own := d.rise(e)
		if own == 0 { // too few of its calls were made under the change
			own = d.risen + d.moved
		}
		rise, now, weights = rise+own/variance, now+above/variance, weights+1/variance
		if v.Buckets == 0 || e.bytes < v.AtBytes {
			v.AtBytes = e.bytes
			v.AddedNs = math.Exp(e.recent[(e.seen-1)%recentCalls].signal-above) * (math.Exp(above) - math.Exp(own))
		}
		v.Buckets++
		v.Calls += n
	}
	if weights == 0 || !few && (v.Buckets < 2 || 2*v.Buckets < moved || d.verdict.Diagnosis == DiagnosisCPUContention) {
		return v, false
	}
	now, rise = now/weights, rise/weights
	v.Signal = math.Exp(now - rise)
	return v, rise > minLogShift && now+2/math.Sqrt(weights) < (1-overShare)*rise
}

// rise is how far a bucket's calls have risen since costs were as ever: its own, for a link of 0.2 GB/s makes puts of 1 KiB half as long
// again and those of 32 KiB thirty times as long, and a program leaves it in the latter only.
func (d *Diagnoser) rise(e *evidence) float64 {
	s, ok := e.shift()
	switch {
	case !ok || !d.open || d.moved == 0:
		return e.risen
	case d.up:
		return e.risen + math.Max(e.most, math.Max(0, s.signal))
	}
	return math.Max(0, e.risen+s.signal)
}

// latest is how far the bucket's newest calls are above what was expected while costs were as ever (logarithms, their median); n 0:
// too few of them were made since the open episode began, or nothing was expected.
func (e *evidence) latest(since uint64) (above, variance float64, n int) {
	var buf [recentCalls]float64
	expectedBy := math.Inf(1)
	for i := max(0, e.seen-recentCalls); i < e.seen; i++ {
		s := e.recent[i%recentCalls]
		r := referenceIn(e.healthy, s.key)
		if s.call <= since || r == nil {
			continue
		}
		if rise, known := e.shown(s.key); known && rise < 2*minLogShift { // it says the same whether the fault is on or not
			continue
		}
		buf[n] = s.signal - r.signal
		expectedBy = math.Min(expectedBy, r.expectedBy)
		n++
	}
	if n < settledCalls {
		return 0, 0, 0
	}
	above = medianOf(buf[:n])
	for i := range buf[:n] {
		buf[i] = math.Abs(buf[i] - above)
	}
	return above, medianVariance(sigmaPerMAD*medianOf(buf[:n]), n, expectedBy), n
}

// unlearn has detectors forget what they have learnt since costs rose first, and expect again what they did before.
func (d *Diagnoser) unlearn() {
	d.back = back{}
	for _, e := range d.order {
		e.detector.unlearn(e.learntAt, e.healthy)
		e.wellAt = d.calls
	}
}
