package tuner

import (
	"maps"
	"slices"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// What hung its ranks or gave wrong elements where somebody measured it is refused: nobody tries it, and nothing that is learned or imported
// takes that back. Only a calibration in which it runs does.

// Refusing is what is known where these are refused, too: nothing is known of them any more, and NCCL's default stands for one that was chosen.
func (l Learned) Refusing(more ...actions.Action) Learned {
	l.Evidence, l.Refused = maps.Clone(l.Evidence), slices.Clone(l.Refused)
	for _, a := range more {
		if a == actions.Default {
			continue
		}
		if a == l.Action {
			l.unchoose()
		}
		delete(l.Evidence, a)
		if !slices.Contains(l.Refused, a) {
			l.Refused = append(l.Refused, a)
		}
	}
	return l
}

// unchoose has NCCL's default stand for what was chosen.
func (l *Learned) unchoose() {
	l.Action, l.SinceNs = actions.Default, 0
	if l.Default > 0 {
		l.CostNs = l.Default
	}
}

// Refusal is a Learned of which nothing is known but what is refused.
func Refusal(key Key, refused ...actions.Action) Learned {
	const anyNs = 1e6 // a record has a cost
	return Learned{Key: key, Action: actions.Default, CostNs: anyNs, Default: anyNs}.Refusing(refused...)
}

// WithoutLL is what is known where LL is NCCL's classic kernel, of what was learned where it may have been its device kernel: NCCL's default
// stands for an LL that was chosen. Only what NCCL has device kernels for on ordinary memory is concerned.
func (l Learned) WithoutLL() Learned {
	if c := l.Key.Bucket.Collective; c != actions.AllReduce && c != actions.AllGather && c != actions.ReduceScatter {
		return l
	}
	isLL := func(a actions.Action) bool { return a.Path == actions.PathCollective && a.Protocol == actions.LL }
	if isLL(l.Action) {
		l.unchoose()
	}
	l.Evidence = maps.Clone(l.Evidence)
	maps.DeleteFunc(l.Evidence, func(a actions.Action, _ Estimate) bool { return isLL(a) })
	l.Refused = slices.DeleteFunc(slices.Clone(l.Refused), isLL)
	return l
}

// refusesOnly says that it is one.
func (l *Learned) refusesOnly() bool { return l.Calls == 0 && len(l.Evidence) == 0 }

// refused are the choices of a bucket that nobody tries, by the store.
func (m *comm) refused(b state.Bucket) []actions.Action {
	if l := m.prior(b); l != nil {
		return l.Refused
	}
	return nil
}

// advisedAgainst takes in that a person refuses choices: what was measured of others stays, and what is in force if it is none of them.
func (c *Core) advisedAgainst(m *comm, l Learned) {
	b := l.Key.Bucket
	if stored := m.prior(b); stored != nil {
		l = stored.Refusing(l.Refused...)
	}
	m.knows(l)
	m.refitEarly()
	if old := m.buckets[b.Collective][b.Log2Bytes]; old != nil {
		m.put(c.refit(m, old, old.allowed))
	}
}
