package tuner

const (
	auditSettled  = 2000      // calls since a choice changed after which there is something to audit,
	auditPatience = 16384     // or since one came into force, where they change ever again
	auditShare    = 1.0 / 100 // of all calls are heard for audits, in the long run,
	auditEarly    = 8         // so many times as many for the first one, half as many for each later one while choices change
	auditDoubles  = 6
	// Before the first one so many calls pass that those which are timed to find the step make all of them dearer by no more than this part.
	auditDearer = 1.0 / 20
)

// auditDue says when a communicator's next audit is due, in calls.
type auditDue struct {
	changedAt uint64 // when a choice changed last
	chosenAt  uint64 // when something was chosen where nothing had been, since the last audit
	known     bool   // both are
	endedAt   uint64
	distance  uint64 // from there
	early     uint64 // and where something has changed
	moved     bool   // something has since the last audit
	audits    uint
	alike     uint // audits in a row between which nothing changed
}

func (d *auditDue) changes(newest uint64) { d.changedAt, d.moved = newest, true }

// since takes in whether something is chosen.
func (d *auditDue) since(newest uint64, chosen bool) {
	switch {
	case !chosen:
		d.known = false
	case !d.known:
		d.known, d.chosenAt = true, newest
		d.changedAt = max(d.changedAt, newest)
	}
}

// now says whether one is due where a timed call is dearer by a part.
func (d *auditDue) now(newest uint64, dearer float64) bool {
	since, wait := d.endedAt, d.distance
	switch {
	case d.audits == 0:
		since, wait = d.chosenAt, uint64(dearer/auditDearer*(rhythmFirst+rhythmCalls))
	case d.moved:
		wait = d.early
	}
	settled := newest-d.changedAt >= auditSettled || newest-d.chosenAt >= auditPatience
	return d.known && settled && newest-since >= wait
}

// ended takes in that an audit took so many calls, and that watching some of them took as long as so many do.
func (d *auditDue) ended(newest, calls uint64, watching float64) {
	if d.audits++; d.moved {
		d.alike = 0
	}
	most := max(float64(max(calls, 1))/auditShare, watching/DefaultWatchShare)
	d.endedAt, d.chosenAt, d.moved = newest, newest, false
	d.distance = uint64(most) << min(d.alike, auditDoubles)
	d.early = uint64(most / float64(max(1, auditEarly>>min(d.audits-1, 8))))
	d.alike++
}
