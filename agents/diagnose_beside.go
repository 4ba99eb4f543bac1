package agents

import (
	"slices"

	"dynamiccl/state"
)

// What connects two ranks is one thing, over whichever context and in whichever direction they put. A program that leaves a network
// that has become slow makes its last puts in one size on most ways, and one size tells no constant from growth: so a way whose own
// sizes do not tell is asked together with those beside it that changed at about the same time.

// besideNs is how long after each other alarms of such ways may be that tell of one change.
const besideNs = state.Ns(5e9)

// maxBeside bounds how many ways are asked: two directions of four contexts.
const maxBeside = 8

// bothWays is by how much a middle of pooled calls is less certain than of as many by themselves: a put and the one the other way have one
// time between them.
const bothWays = 2

// Beside has the diagnosers of two ways between the same ranks know of each other.
func (d *Diagnoser) Beside(other *Diagnoser) {
	if len(d.beside) < maxBeside && len(other.beside) < maxBeside {
		d.beside, other.beside = append(d.beside, other), append(other.beside, d)
	}
}

// pooled is what ways between the same ranks show of one size.
type pooled struct {
	shift shift
	after []deviation
	kinds []shift
}

// together gives the shifts of d and of the ways beside it, calls of one size as one, and how many calls there are behind alarms; false: no
// way beside it tells of the same change.
func (d *Diagnoser) together() (shifts []shift, fresh int, more bool) {
	for i := range d.pool {
		d.pool[i].after = d.pool[i].after[:0]
	}
	fresh = d.poolOwn(d)
	for _, other := range d.beside {
		if other.open && other.up == d.up && max(other.alarmNs-d.alarmNs, d.alarmNs-other.alarmNs) <= besideNs {
			fresh += d.poolOwn(other)
			more = true
		}
	}
	for i := range d.pool {
		p := &d.pool[i]
		if len(p.after) < minShiftCalls {
			continue
		}
		s := sumOf(p.after)
		s.bytes, s.alarmed, s.put, s.byGPU = p.shift.bytes, p.shift.alarmed, p.shift.put, p.shift.byGPU
		longest := uint8(1)
		for j := range p.after {
			longest = max(longest, p.after[j].queue)
		}
		if longest > 1 {
			p.kinds = apart(p.after, longest, p.kinds[:0])
			for j := range p.kinds {
				p.kinds[j].signalVar *= bothWays
			}
			s.kinds = &p.kinds
		}
		s.signalVar *= bothWays
		shifts = append(shifts, s)
	}
	return shifts, fresh, more
}

// poolOwn adds a way's calls, and counts those behind its alarms.
func (d *Diagnoser) poolOwn(way *Diagnoser) (fresh int) {
	for _, e := range way.order {
		if e.taken == 0 {
			continue
		}
		at := slices.IndexFunc(d.pool, func(p pooled) bool { return p.shift.bytes == e.bytes })
		if at < 0 {
			at = len(d.pool)
			d.pool = append(d.pool, pooled{})
		}
		p := &d.pool[at]
		if len(p.after) == 0 {
			p.shift = shift{bytes: e.bytes, put: e.detector.puts, byGPU: e.byGPU}
		}
		p.shift.alarmed = p.shift.alarmed || e.alarmed
		p.after = append(p.after, e.after[:e.taken]...)
		if e.alarmed {
			fresh += e.fresh()
		}
	}
	return fresh
}

// askBeside classifies what its own sizes leave unknown. Only what more sizes can tell is taken over.
func (d *Diagnoser) askBeside(is circumstances) Diagnosis {
	if !d.up || len(d.beside) == 0 {
		return DiagnosisUnknown
	}
	all, fresh, more := d.together()
	if !more || fresh < minShiftCalls {
		return DiagnosisUnknown
	}
	is.fresh = fresh
	if v := classify(all, is); v == DiagnosisBackendFallback || v == DiagnosisCongestion {
		return v
	}
	return DiagnosisUnknown
}

// Again judges a way once more, since one beside it has another diagnosis now: a program may have left this way.
func (d *Diagnoser) Again() Verdict {
	d.verdict.New, d.verdict.Joined = false, false
	last := d.verdict.Diagnosis
	if a := d.shares(); a.Raised {
		d.joinBeside(d.newest(), a)
		d.lastAlarm = d.calls
	} else if d.Undecided() && len(d.beside) > 0 {
		d.judge()
	}
	d.verdict.New = d.verdict.New || d.verdict.Diagnosis != last
	return d.verdict
}
