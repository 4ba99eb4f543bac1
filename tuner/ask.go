package tuner

import "dynamiccl/state"

// ask has every bucket of a communicator say what it wants now.
func (c *Core) ask(nowNs state.Ns, m *comm) {
	m.touched, m.tickedNs = false, nowNs
	if m.audit.holds() {
		return
	}
	for _, b := range m.turns() {
		before := b.entry.Base
		b = c.hush(nowNs, m, b)
		if m.awaits(b) {
			b.look.heardAt, b.look.heardNs = m.newest, nowNs
		}
		if m.single() && !m.audit.stills() {
			b.overdue(m.newest, nowNs)
		}
		trials := MaxTrials
		if m.waits(c.cfg) || !m.mayTry(b) || m.audit.stills() {
			trials = 0
		}
		if b.propose(nowNs, c.cfg.Explore && m.Explore, m.single(), trials, &m.LastID) {
			m.dirty = true
			if len(b.entry.Trials) > 0 {
				m.tried = b
			}
		}
		if b.entry.Base != before {
			m.audit.chose(m.newest)
		}
		if b.entry.Base != before || b.diagUntold || b.calls >= b.learnedAt+learnEvery {
			c.learned(m, b)
		}
	}
}
