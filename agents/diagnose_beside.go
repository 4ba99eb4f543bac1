package agents

import "dynamiccl/state"

// What connects two ranks is one thing, over whichever context and in whichever direction they put. A program that leaves a network
// that has become slow makes its last puts in one size on most ways, and one size tells no constant from growth: so a way whose own
// sizes do not tell is asked together with those beside it that changed at about the same time.

// besideNs is how long after each other alarms of such ways may be that tell of one change.
const besideNs = state.Ns(5e9)

// maxBeside bounds how many ways are asked: two directions of four contexts.
const maxBeside = 8

// Beside has the diagnosers of two ways between the same ranks know of each other.
func (d *Diagnoser) Beside(other *Diagnoser) {
	if len(d.beside) < maxBeside && len(other.beside) < maxBeside {
		d.beside, other.beside = append(d.beside, other), append(other.beside, d)
	}
}

// together gives d's shifts and those of the ways beside it; false: there are none of the same change.
func (d *Diagnoser) together() ([]shift, bool) {
	own := len(d.shifts)
	for _, other := range d.beside {
		if !other.open || other.up != d.up || max(other.alarmNs-d.alarmNs, d.alarmNs-other.alarmNs) > besideNs {
			continue
		}
		for _, e := range other.order {
			if s, ok := e.shift(); ok {
				d.shifts = append(d.shifts, s)
			}
		}
	}
	return d.shifts, len(d.shifts) > own
}

// askBeside classifies what its own sizes leave unknown. Only what more sizes can tell is taken over.
func (d *Diagnoser) askBeside(is circumstances) Diagnosis {
	if !d.up || len(d.beside) == 0 || is.fresh < minShiftCalls {
		return DiagnosisUnknown
	}
	all, more := d.together()
	if !more {
		return DiagnosisUnknown
	}
	if v := classify(all, is); v == DiagnosisBackendFallback || v == DiagnosisCongestion {
		return v
	}
	return DiagnosisUnknown
}

// Again judges an episode that has no diagnosis once more, since a way beside it has one now: a program may have left this way.
func (d *Diagnoser) Again() Verdict {
	d.verdict.New = false
	if d.Undecided() && len(d.beside) > 0 {
		last := d.verdict.Diagnosis
		d.judge()
		d.verdict.New = d.verdict.Diagnosis != last
	}
	return d.verdict
}
