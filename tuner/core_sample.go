package tuner

import (
	"fmt"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

func (c *Core) sample(nowNs state.Ns, s *Sample) {
	c.totals.Samples++
	m := c.comms[s.Comm]
	if m == nil || s.Bucket.Collective >= actions.NumCollectives || s.Bucket.Log2Bytes >= state.NumBuckets {
		c.totals.Unknown++
		return
	}
	if m.joiner.stuck() {
		m.joiner.restart()
		c.find(nowNs, m, s.Bucket, agents.DiagnosisUnknown, "samples of the last calls fit no open call: a rank reports nonsense, or lags by far; joining starts anew")
	}
	o, bad, done := m.joiner.add(nowNs, s)
	if rank, silent := m.joiner.silent(); silent {
		c.find(nowNs, m, s.Bucket, agents.DiagnosisUnknown, fmt.Sprintf("rank %d reports no samples: nothing of this communicator can be measured", rank))
	}
	if !done {
		return
	}
	c.totals.Groups++
	unknown := c.totals.Ran.NotKnown
	if c.totals.Ran.count(o, &m.joiner, m.untold(s.Bucket, o.Action)) {
		c.keepOverruled(m.Shape, s, o)
	}
	if c.totals.Ran.NotKnown > unknown {
		c.countUnknown(m.Shape, s, o)
	}
	m.touched = true
	made, share := m.passed(o.Seq), max(2*c.cfg.WatchShare, c.cfg.Guard.Income)
	b := m.buckets[s.Bucket.Collective][s.Bucket.Log2Bytes]
	m.audit.hear(heardCall{seq: o.Seq, kind: kindOf(s)}, b != nil && o.Action != b.entry.Base, o.Plan, m.joiner.beganNs, m.joiner.endedNs, m.joiner.addedNs)
	c.hearsCompute(m, s, o.Seq)
	if b = m.buckets[s.Bucket.Collective][s.Bucket.Log2Bytes]; b != nil { // which may be made anew
		b.look.heard(m.newest, nowNs)
	}
	if !bad {
		m.connected.ran(o.Ran)
		if o.Ran.Path == actions.PathGIN {
			c.totals.OverGIN++
		}
	}
	if m.joiner.slow {
		m.watch.slow(made, share)
		c.slow(m, b, o, bad)
		return
	}
	m.watch.observe(o.SignalNs, made, share)
	if b != nil && m.joiner.counted {
		o.Unseen = b.unseen(m.joiner.made)
	}
	sound := c.sound(b, o, bad)
	switch {
	case sound:
		b.seenAt = m.observed
	case b != nil && !bad && overrules(o.Ran, o.Action):
		c.misnamed(m, b, o.Action)
	}
	if c.cfg.Trace {
		alarms := c.totals.Alarms
		defer func() {
			c.out.Watched = append(c.out.Watched, Watched{Comm: m.Comm, Bucket: s.Bucket, Observation: o, Sound: sound, Alarms: int(c.totals.Alarms - alarms)})
		}()
	}
	if m.exposure == nil {
		if sound {
			c.observe(nowNs, m, b, o, o)
		}
		return
	}
	call := timed{o: o, kind: kindOf(s), startNs: m.joiner.beganNs, endNs: m.joiner.endedNs}
	if sound {
		call.bucket, call.trial = b, o.Action != b.entry.Base
	}
	before, costNs, ok := m.exposure.next(call)
	switch charged := before.o; {
	case before.bucket == nil:
	case ok:
		charged.SignalNs, charged.CounterNs = costNs, 0
		c.observe(nowNs, m, before.bucket, charged, before.o)
	default:
		before.bucket.pass(&before.o)
	}
}

// sound reports whether a call that all ranks have reported says something of what its bucket asked for.
func (c *Core) sound(b *bucket, o state.Observation, bad bool) bool {
	switch {
	case b == nil:
		c.totals.Unknown++
		return false
	case bad:
		return false
	case overrules(o.Ran, o.Action):
		return false // what was asked for did not run: not a cost of the choice
	case b.firstRun(o.Action), b.warming(&o):
		c.totals.Cold++
		b.pass(&o)
		return false
	case b.waits(&o):
		c.totals.Waited++
		b.pass(&o)
		return false
	}
	return true
}

// observe gives a call to its bucket: as it is charged, and as it was.
func (c *Core) observe(nowNs state.Ns, m *comm, b *bucket, charged, o state.Observation) {
	if b.firstNs == 0 {
		b.firstNs = nowNs
	}
	alarm := b.observe(charged, o)
	verdict := m.diagnoser.Observe(b.Bucket, b.detector, o, alarm)
	if alarm.Raised {
		c.alarmed(nowNs, m, b, alarm)
		b.shift(verdict.Diagnosis, c.cfg.Explore && m.Explore)
		m.audit.alarmed()
	}
	if verdict.New && verdict.Diagnosis != agents.DiagnosisNone {
		b.diagnosis, b.diagNs, b.diagBefore, b.diagUntold = verdict.Diagnosis, nowNs, false, true
		c.find(nowNs, m, b.Bucket, verdict.Diagnosis, verdict.Detail())
	}
	switch back, came := b.guard.CameBack(); {
	case came:
		m.stir(b, back)
	case verdict.New && verdict.Diagnosis == agents.DiagnosisRecovered, alarm.Raised && !alarm.Up && o.Action != actions.Default:
		m.stir(b, o.Action)
	}
}

func (c *Core) find(nowNs state.Ns, m *comm, b state.Bucket, d agents.Diagnosis, text string) {
	c.out.Findings = append(c.out.Findings, Finding{Comm: m.Comm, Bucket: b, AtNs: nowNs, Diagnosis: d, Text: text})
}
