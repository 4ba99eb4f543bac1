package agents

import (
	"math"
	"slices"
)

// What has a diagnosis says what it does to each size, and so to those that nothing is known of yet.
//   - A size that is rare, or varies much, alarms long after others, when these have got used to the fault. Held against what they have
//     learnt under it, it alone has changed: a second fault, which grows with bytes or falls with them. Held against this it is the same.
//   - Sizes that come behind the end of a fault need not be those that came under it.

// added is what the open episode's diagnosis adds.
type added struct {
	least, most float64 // ns, to a put or to each byte: of a queue nobody knows the place in it
	perByte     bool
}

// measure says what the diagnosis adds by the buckets that alarmed; nothing where it is neither a constant nor growth with bytes.
func (d *Diagnoser) measure() {
	perByte := d.verdict.Diagnosis == DiagnosisCongestion
	if !perByte && d.verdict.Diagnosis != DiagnosisBackendFallback || !d.up {
		d.added = added{}
		return
	}
	if d.back.calls > 0 && d.added.perByte == perByte && d.added.most > 0 { // it may be over
		return
	}
	shifts := d.shifts
	if !slices.ContainsFunc(shifts, func(s shift) bool { return s.alarmed }) { // too few calls of those: others have told
		if d.added.perByte == perByte && d.added.most > 0 {
			return
		}
		shifts, _, _ = d.together()
	}
	var least, most [maxFitted]float64
	n := 0
	for _, k := range kindsOf(shifts) {
		if k.alarmed {
			each := k.addedNs()
			if perByte {
				each /= k.bytes
			}
			least[n], most[n] = each/float64(k.queue), each
			n++
		}
	}
	d.added = added{medianOf(least[:n]), medianOf(most[:n]), perByte}
}

// foretells gives by how much the diagnosis says that a bucket's calls of that kind have risen above r, in log units; 0: it says nothing.
func (d *Diagnoser) foretells(e *evidence, r *reference) (least, most float64) {
	each := d.added
	if each.perByte {
		each.least, each.most = each.least*e.bytes, each.most*e.bytes
	}
	before := math.Exp(r.signal)
	return math.Log1p(math.Max(0, each.least/before)), math.Log1p(math.Max(0, each.most*float64(e.queue(r.key.action))/before))
}

// foretold says that the first alarm of a size is of what the open episode's diagnosis says.
func (d *Diagnoser) foretold(e *evidence, a Alarm) bool {
	if !d.decided || !d.up || !a.Up || e.alarmed || a.Signal.AfterNs == 0 || d.added.most <= 0 {
		return false
	}
	r := e.reference(e.newest().key)
	if r == nil {
		return false
	}
	least, most := d.foretells(e, r)
	is := math.Log(a.Signal.AfterNs) - r.signal
	return math.Max(least-is, is-most) <= math.Max(minLogShift, math.Abs(math.Log(a.Signal.Ratio()))*selected)
}
