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
// for KernelsOpen, and what NCCL is told by name on registered memory for marks, for no rank may run one before all have opened each other's memory; ranks that find no room in it for a
// call pass it through alike. kernels: these alone.
func (c *Core) early(m *comm, kernels bool) (entries []Entry) {
	gain := map[state.Bucket]float64{}
	for i := range m.Prior {
		l := &m.Prior[i]
		b, a := l.Key.Bucket, l.Action
		switch {
		case l.Calls == 0 || l.CostNs <= 0 || a.Check() != nil:
			continue
		case b.Collective >= actions.NumCollectives || b.Log2Bytes >= state.NumBuckets:
			continue
		case (c.cfg.FixedNumerics || m.FixedNumerics) && actions.ReductionOrderMatters(b.Collective):
			continue
		case len(measurable([]actions.Action{a}, m.Shape.Nodes, m.EventTimed)) == 0 || m.MaxChannels > 0 && int(a.Channels) > m.MaxChannels:
			continue
		}
		if running := m.InForce[b]; running != actions.Default {
			a = running // of an earlier daemon: ranks run it now
		}
		if ours := a.Path == actions.PathLSA; ours != kernels || !ours && (a.Path != actions.PathCollective || b.Collective.Registered()) {
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
	if more := c.early(m, true); len(more) > 0 {
		m.early, m.dirty = append(more, m.early...), true // they gain the most
	}
}
