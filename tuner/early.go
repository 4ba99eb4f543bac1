package tuner

import (
	"cmp"
	"slices"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// early gives entries for stored choices of buckets that were not called yet, so that a communicator's first plan has them:
// a program that captures CUDA graphs makes few calls of a size before it captures it, and asks no more then. Waiting for
// marks would cost a call, and up to recordEvery of the daemon after it.
//
// Nobody has seen this communicator's marks then (docs/design.md, decision 7). What stands for them: the choice was
// measured on this machine with this NCCL and shape, where every rank allowed it, and each rank still looks into its own
// table at every call and passes through what is marked there. That ranks look into equal tables is then NCCL's word
// alone, until they have reported; a choice that somebody imported and nobody measured waits for that. Our own kernels wait
// for KernelsOpen, for no rank may run one before all have opened each other's memory; ranks that find no room in it for a
// call pass it through alike. What is for registered memory waits for the first call of its collective there, of any size: that
// all ranks tell of one says that all register what they call with, and which is called; a plan has no room for both.
// when: those that nothing keeps waiting any more.
func (c *Core) early(m *comm, when func(state.Bucket, actions.Action) bool) (entries []Entry) {
	gain := map[state.Bucket]float64{}
	for i := range m.Prior {
		l := &m.Prior[i]
		b, a := l.Key.Bucket, l.Action
		switch {
		case l.Calls == 0 || l.CostNs <= 0 || a.Check() != nil:
			continue
		case b.Collective >= actions.NumCollectives || b.Log2Bytes >= state.NumBuckets:
			continue
		case m.fixed(b.Collective):
			continue
		case m.several() && len(acrossHosts([]actions.Action{a}, b.Collective)) == 0:
			continue
		case len(measurable([]actions.Action{a}, m.Shape.Nodes, m.EventTimed)) == 0 || m.MaxChannels > 0 && int(a.Channels) > m.MaxChannels:
			continue
		}
		if running := m.InForce[b]; running != actions.Default {
			a = running // of an earlier daemon: ranks run it now
		}
		a = m.fitting(b, a)
		if a == actions.Default || a.Path == actions.PathGIN || !when(b, a) {
			continue
		}
		m.LastID++
		gain[b] = l.Default / l.CostNs
		entries = append(entries, Entry{Bucket: b, ID: m.LastID, Base: a})
	}
	slices.SortStableFunc(entries, func(x, y Entry) int { return cmp.Compare(gain[y.Bucket], gain[x.Bucket]) })
	return entries
}

// kernelsOpen puts stored choices of our own kernels into the plan.
func (c *Core) kernelsOpen(e KernelsOpen) {
	m := c.comms[e.Comm]
	if m == nil || m.kernels {
		return
	}
	m.kernels = true
	m.sooner(c.early(m, func(b state.Bucket, a actions.Action) bool {
		return a.Path == actions.PathLSA && (!b.Collective.Registered() || m.registered[b.Collective])
	}))
}

// onRegistered puts stored choices into the plan that are for this collective's calls on registered memory.
func (c *Core) onRegistered(m *comm, of actions.Collective) {
	if !of.Registered() || m.registered[of] {
		return
	}
	m.registered[of] = true
	m.sooner(c.early(m, func(b state.Bucket, a actions.Action) bool {
		return b.Collective == of && (a.Path != actions.PathLSA || m.kernels)
	}))
}

// sooner takes in entries that go before those that are there: our kernels gain the most. What is for registered memory comes first
// of all, for that it is called is known.
func (m *comm) sooner(more []Entry) {
	if len(more) == 0 {
		return
	}
	m.early, m.dirty = append(more, m.early...), true
	slices.SortStableFunc(m.early, func(x, y Entry) int { return after(x) - after(y) })
}

func after(e Entry) int {
	if e.Bucket.Collective.Registered() {
		return 0
	}
	return 1
}
