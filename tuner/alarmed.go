package tuner

import (
	"dynamiccl/agents"
	"dynamiccl/state"
)

// Alarmed is one alarm of a bucket's detector. What it means a Finding says, mostly some calls later.
type Alarmed struct {
	Comm      CommID
	Bucket    state.Bucket
	AtNs      state.Ns
	Up        bool // costs rose
	BySignal  bool // the signal's chart crossed its threshold
	ByCounter bool // likewise the counter's; both may be set
}

func (c *Core) alarmed(nowNs state.Ns, m *comm, b *bucket, a agents.Alarm) {
	c.totals.Alarms++
	c.out.Alarms = append(c.out.Alarms, Alarmed{Comm: m.Comm, Bucket: b.Bucket, AtNs: nowNs, Up: a.Up, BySignal: a.BySignal, ByCounter: a.ByCounter})
}
