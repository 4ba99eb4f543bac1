package tuner

import (
	"slices"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

// audit asks now and then whether what was chosen by what calls take makes the program's steps longer, as choices do that take from the
// compute beside them more than they gain (docs/design.md, decision 33). Steps under it and under NCCL's default are compared, in blocks by
// turns; where they are longer beyond doubt NCCL's default is in force until another audit shows that they are shorter.
type audit struct {
	phase     auditPhase
	vetoed    bool     // NCCL's default is in force for the communicator, whatever its buckets have chosen,
	vetoedNs  state.Ns // since then
	due       auditDue
	from      uint64 // the communicator's newest call when this audit began
	heard     int    // calls since then
	stillFrom uint64 // the newest call when what was under way was to come to an end
	gaps      gaps
	rhythm    *rhythm // nil while it rests
	duel      *duel   // nil while nothing is compared, or what was began anew
	block     auditBlock
	every     int    // epochs between two sampled ones
	latest    uint32 // version of the latest plan
	inPlan    bool   // as that one has it: plain,
	graphsIn  bool   // and vetoes
	seed      uint64
	number    uint64     // of audits that compared something
	told      *AuditView // nil: none has come to anything
}

type auditPhase uint8

const (
	auditRests    auditPhase = iota
	auditListens             // every call is heard: the step's order is looked for
	auditStills              // nothing new is tried: what is under way comes to an end
	auditCompares            // blocks run, and some of their calls are heard
)

const (
	// A block of which so many calls more than it needs were heard without its steps loses samples, or calls that the step knows.
	auditSpare = 4096
	// What is under way when the step is known has so many calls to come to an end.
	auditStill = 2048
	// A communicator whose stream waits for nothing but calls for all but this part of its time has no steps to make longer: faster calls are
	// the shorter step.
	auditGaps = 0.01
)

// plain says that NCCL's default is in force for all of the communicator.
func (a *audit) plain() bool {
	switch {
	case a == nil:
		return false
	case a.duel != nil:
		return a.duel.byDefault()
	}
	return a.vetoed
}

// vetoes says that NCCL's default is in force because steps are shorter with it.
func (a *audit) vetoes() bool { return a != nil && a.vetoed }

// watches says that more calls are to be heard than of those who rest.
func (a *audit) watches() bool { return a != nil && a.phase != auditRests }

// stills says that nothing new may be tried.
func (a *audit) stills() bool { return a != nil && a.phase >= auditStills }

// holds says that no bucket may propose anything.
func (a *audit) holds() bool { return a != nil && (a.vetoed || a.phase == auditCompares) }

// hear takes in a call that all ranks have told of, and the version of the plan that was in force for it. startNs 0: its instants are not
// known. trial: it ran something else than its bucket's base, and the time behind it is none of the step's. addedNs: what timing it has
// added to it, which is another time for what was chosen than for NCCL's default.
func (a *audit) hear(c heardCall, trial bool, plan uint32, startNs, endNs int64, addedNs state.Ns) {
	if !a.watches() {
		return
	}
	a.heard++
	r, seq := a.rhythm, c.seq
	anew := r.hear(seq, c.kind)
	between := a.gaps.hear(interval{seq, startNs, endNs}, trial)
	if a.phase != auditCompares {
		if between > 0 {
			r.took(seq-1, between)
		}
		return
	}
	if anew { // other steps than those of the blocks before
		a.duel = nil
		return
	}
	b := &a.block
	at, ok := r.place(seq)
	switch {
	case !ok:
		b.lose()
	case !b.awaits && int32(plan-b.version) >= 0:
		b.hear(seq, at, r.period, startNs, int64(addedNs))
	}
}

// published says that the latest plan has this version.
func (a *audit) published(version uint32) {
	if a == nil {
		return
	}
	if a.latest = version; a.block.awaits {
		a.block.awaits, a.block.version = false, version
	}
}

// disturbed says that a bucket is another one now.
func (a *audit) disturbed(newest uint64) {
	if a != nil {
		a.due.changes(newest)
		a.duel = nil
	}
}

// chose says that another choice is in force.
func (a *audit) chose(newest uint64) {
	if a != nil {
		a.due.changes(newest)
	}
}

// alarmed says that conditions have changed. A duel goes on: what it says holds under any.
func (a *audit) alarmed() {
	if a != nil {
		a.due.moved = true
	}
}

// advised says that a person wants something else in force.
func (a *audit) advised(newest uint64) {
	if a != nil {
		a.vetoed, a.told = false, nil // which tells of what was in force
		a.disturbed(newest)
	}
}

// auditOf has a communicator's audit go on. It is to be asked at each Tick behind which something was observed, before buckets propose.
func (c *Core) auditOf(nowNs state.Ns, m *comm) {
	a := m.audit
	if a == nil {
		return
	}
	switch a.phase {
	case auditRests:
		a.due.since(m.newest, m.chooses())
		if a.due.now(m.newest, m.watch.dearer) && !m.waits(c.cfg) && !m.contested() {
			a.phase, a.from, a.heard, a.every, a.rhythm, a.gaps = auditListens, m.newest, 0, 1, &rhythm{}, gaps{}
		}
	case auditListens:
		switch r := a.rhythm; {
		case m.newest-a.from > rhythmPatience:
			a.rests(m) // nobody knows its steps
		case a.heard >= rhythmLongest && a.gaps.idle <= auditGaps*a.gaps.all:
			a.rests(m)
		case r.period == 0 || a.heard < rhythmFirst+rhythmCalls: // until then a longer step may be found
		case !m.chooses() || m.contested():
			a.rests(m)
		default:
			a.phase, a.stillFrom = auditStills, m.newest
		}
	case auditStills:
		switch {
		case a.rhythm.period == 0: // lost meanwhile: it is found again or, in time, taken to be none
			a.phase = auditListens
		case m.newest-a.stillFrom > auditStill || !m.chooses() || m.contested():
			a.rests(m)
		case m.stills():
			a.number++
			a.phase, a.every, a.duel = auditCompares, auditEvery(a.rhythm.period), newDuel(!a.vetoed, a.seed, a.number)
			a.block, a.rhythm.fixed = auditBlock{version: a.latest}, true
			a.begins(m.newest)
		}
	case auditCompares:
		c.goesOn(nowNs, m)
	}
	if plain, vetoes := a.plain(), a.vetoes(); plain != a.inPlan || vetoes != a.graphsIn { // a verdict may be for calls what the last block was
		a.inPlan, a.graphsIn, m.dirty = plain, vetoes, true
	}
}

// begins has the next block be under way. One of the same way as before goes on with its steps.
func (a *audit) begins(newest uint64) {
	if a.duel.byDefault() != a.inPlan {
		a.block = auditBlock{awaits: true}
	}
	a.block.logNs, a.block.steps, a.block.began = a.block.logNs[:0], 0, newest
}

// goesOn ends the block under way when it has its steps.
func (c *Core) goesOn(nowNs state.Ns, m *comm) {
	a := m.audit
	if a.duel == nil || m.contested() {
		a.rests(m)
		return
	}
	if !a.block.whole() {
		if m.newest-a.block.began > auditSpare+4*(auditSteps+auditLead)*uint64(max(1, len(a.rhythm.order))) {
			a.rests(m)
		}
		return
	}
	o := a.duel.block(middle(a.block.logNs))
	if o == undecided {
		a.begins(m.newest)
		return
	}
	if c.totals.Audits++; o == worse {
		if a.vetoed = !a.vetoed; a.vetoed {
			c.totals.Vetoes++
		}
		a.vetoedNs = nowNs
	}
	by, low, high := a.duel.chosen()
	a.told = &AuditView{Pairs: len(a.duel.differ), LongerBy: by, Low: low, High: high, Vetoed: a.vetoed}
	if o == worse {
		c.find(nowNs, m, m.chosen().Bucket, agents.DiagnosisNone, a.told.finding())
	}
	a.rests(m)
}

// rests ends an audit.
func (a *audit) rests(m *comm) {
	a.phase, a.rhythm, a.duel, a.block = auditRests, nil, nil, auditBlock{}
	a.due.ended(m.newest, m.newest-a.from, m.watch.dearer*float64(a.heard))
	m.eachBucket(func(b *bucket) { b.fresh = true })
}

// chooses says that something else than NCCL's default is chosen.
func (m *comm) chooses() bool { return m.chosen() != nil }

// chosen is the first bucket that has chosen something; nil: none has.
func (m *comm) chosen() *bucket {
	for _, b := range m.order {
		if !b.differ && b.entry.Base != actions.Default {
			return b
		}
	}
	return nil
}

// contested says that it is asked of a bucket's choice whether it is slow: that is more urgent.
func (m *comm) contested() bool {
	return slices.ContainsFunc(m.order, func(b *bucket) bool { return b.contest.on || b.contest.lost })
}

// stills reports that no bucket has trials in its entry, which would run again when the entry comes back into a plan. Trials of which
// nothing more is heard are given up.
func (m *comm) stills() bool {
	still := true
	m.eachBucket(func(b *bucket) {
		if len(b.entry.Trials) == 0 || b.differ {
			still = still && (b.published || b.differ)
			return
		}
		still = false
		if b.nextTrial >= len(b.entry.Trials) || !m.trying(b) {
			b.nextTrial, b.fresh = len(b.entry.Trials), true // an entry without trials is next
		}
	})
	return still
}
