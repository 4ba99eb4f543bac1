package tuner

import (
	"maps"
	"slices"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// Places on multiprocessors (docs/design.md, decision 2). A block of our kernels fills a multiprocessor and stays
// there until its likes on the other GPUs have come. Kernels of several communicators may be outstanding at once, in another order
// on each GPU, and those that are there keep the others out: with 128 CTAs two of them waited for each other for ever. Where all
// but one of them always leave multiprocessors to that one, whichever it is, none waits for a place for ever.

// An H200 has 132 multiprocessors, in 8 groups as its like. Of 25 that are left four are in one group, which a cluster of NCCL's wants
// (kernels/host/memory.c counts with the same).
const (
	usualMultiprocessors = 132
	clusterReserve       = 24
)

// mostCTAs is what each of so many kernels may have on a GPU of so many multiprocessors, 0: not known. More than usual are worth
// nothing, so that what is known later never raises the bound.
func mostCTAs(outstanding, multiprocessors int) uint8 {
	if multiprocessors == 0 || multiprocessors > usualMultiprocessors {
		multiprocessors = usualMultiprocessors
	}
	for _, n := range slices.Backward(ctaChoices) {
		if (outstanding-1)*int(n) < max(1, multiprocessors-clusterReserve) {
			return n
		}
	}
	return ctaChoices[0]
}

// withCTAs gives the same kernel with no more CTAs than that; rails: kernels on GIN are hierarchical, unless they are to be flat. These
// count channels, and where not one of them has room the flat kernel stands for them, as in the library (kernels/host/gin_run.c).
func withCTAs(a actions.Action, most uint8, rails bool) actions.Action {
	own := uint8(defaultCTAs)
	switch {
	case a.Path == actions.PathGIN:
		own = actions.MaxContexts
		if rails && !a.Flat {
			a.Flat = most < railRoles
			most = max(1, most/railRoles)
		}
	case a.Path != actions.PathLSA:
		return a
	}
	if a.Channels > most || a.Channels == 0 && most < own {
		a.Channels = most
	}
	return a
}

// setWithin is a set for kernels of so many CTAs at most. What has more in it is there with that many, once.
func setWithin(set []actions.Action, most uint8, rails bool) []actions.Action {
	fewer := make([]actions.Action, 0, len(set))
	for _, a := range set {
		if a = withCTAs(a, most, rails); !slices.Contains(fewer, a) {
			fewer = append(fewer, a)
		}
	}
	return fewer
}

// mostPlaces is what a kernel of the communicator's may have, that all have places.
func (m *comm) mostPlaces() uint8 {
	return uint8(least(int(mostCTAs(m.Outstanding, m.Multiprocessors)), m.MaxCTAs))
}

// least of two numbers, of which 0 is not known.
func least(a, b int) int {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// Narrow takes in what one more rank has.
func (o *Outstanding) Narrow(multiprocessors, maxCTAs int) {
	o.Multiprocessors, o.MaxCTAs = least(o.Multiprocessors, multiprocessors), least(o.MaxCTAs, maxCTAs)
}

// fitting is what stands for a choice of a bucket: it, or the same kernel with as many CTAs as there may be, unless that was
// measured to be no better than NCCL's default, or, where it is for compute that it has fewer, was not measured.
func (m *comm) fitting(b state.Bucket, a actions.Action) actions.Action {
	fewer := withCTAs(a, m.mostCTAs(b), hasRails(b, m.Shape))
	if fewer.Path == actions.PathCollective && m.channels(b.Collective) == OwnChannels {
		fewer.Channels = 0 // what runs, which was measured or not
		if l := m.prior(b); fewer != a && (l == nil || l.Evidence[fewer].N == 0) {
			return actions.Default
		}
	}
	if l := m.prior(b); fewer != a {
		was, measured := measuredIn(l, fewer)
		if measured && was.MeanNs >= l.Evidence[actions.Default].MeanNs || !measured && m.spares(b) {
			return actions.Default // half as many CTAs are slower than that from 16 MiB on
		}
	}
	if slices.Contains(m.refused(b), fewer) {
		return actions.Default
	}
	return fewer
}

func measuredIn(l *Learned, a actions.Action) (e Estimate, ok bool) {
	if l != nil {
		e, ok = l.Evidence[a]
	}
	return e, ok
}

// fittingPrior is what is known of a bucket beforehand, with a choice that may be taken. What that costs is known where it was
// measured.
func (m *comm) fittingPrior(b state.Bucket) *Learned {
	l := m.prior(b)
	if l == nil {
		return nil
	}
	a := m.fitting(b, l.Action)
	if a == l.Action {
		return l
	}
	fewer := *l
	fewer.Action, fewer.SinceNs, fewer.CostNs = a, 0, l.Evidence[a].MeanNs
	return &fewer
}

// outstanding takes in that more kernels may wait beside a communicator's, that there is less room, or that the program allows less. Where these may have fewer CTAs
// now, buckets that have more in their sets start anew from what was measured, and ranks get a plan. That fewer may wait is not heard:
// the bound would come and go with communicators that live for a moment, and choices with it.
func (c *Core) outstanding(e Outstanding) {
	m := c.comms[e.Comm]
	if m == nil {
		return
	}
	before := m.mostPlaces()
	m.Outstanding = max(m.Outstanding, e.Kernels)
	m.Multiprocessors, m.MaxCTAs = least(m.Multiprocessors, e.Multiprocessors), least(m.MaxCTAs, e.MaxCTAs)
	if m.mostPlaces() != before {
		c.refits(m)
	}
}

// refits has a communicator's choices have as few CTAs as they may have now.
func (c *Core) refits(m *comm) {
	m.refitEarly()
	for _, b := range slices.Clone(m.order) {
		if set := setWithin(b.allowed, m.mostCTAs(b.Bucket), hasRails(b.Bucket, m.Shape)); !slices.Equal(set, b.allowed) {
			m.put(c.refit(m, b, set))
		}
	}
}

func (m *comm) refitEarly() {
	kept := m.early[:0]
	for _, e := range m.early {
		if a := m.fitting(e.Bucket, e.Base); a != e.Base {
			m.LastID++
			e.ID, e.Base, m.dirty = m.LastID, a, true
		}
		if e.Base != actions.Default {
			kept = append(kept, e)
		}
	}
	m.early = kept
}

// refit makes a bucket anew with another set. What was measured is where its learner begins, and what was in force stays, as far
// as it may. A choice from before that the old set had no room for still waits to be judged: a rank may have learned only now that it can
// run it.
func (c *Core) refit(m *comm, old *bucket, set []actions.Action) *bucket {
	base, stored := old.entry.Base, m.prior(old.Bucket)
	waits := func(a actions.Action) bool {
		return base == actions.Default && !slices.Contains(old.set, sameIn(old.set, m.fitting(old.Bucket, a)))
	}
	if l, ok := old.learned(base); ok {
		l.Evidence = withEarlier(l, stored)
		switch {
		case stored == nil, stored.refusesOnly():
		case stored.Calls == 0:
			l.Calls = 0 // a person's advice is in it
		case waits(stored.Action):
			l.Action, l.SinceNs, l.CostNs = stored.Action, stored.SinceNs, l.Evidence[stored.Action].MeanNs
		}
		m.knows(l)
	}
	if !waits(m.InForce[old.Bucket]) {
		m.InForce = maps.Clone(m.InForce)
		if m.InForce == nil {
			m.InForce = map[state.Bucket]actions.Action{}
		}
		m.InForce[old.Bucket] = base
	}
	return c.newBucket(m, old.Bucket, set, old.differ)
}

// withEarlier is the evidence of l and, of what it has not, earlier one, as much slower or faster as the default is now.
func withEarlier(l Learned, earlier *Learned) map[actions.Action]Estimate {
	all := maps.Clone(l.Evidence)
	if earlier == nil || earlier.Default <= 0 {
		return all
	}
	for a, e := range earlier.Evidence {
		if _, now := all[a]; !now {
			e.MeanNs *= l.Default / earlier.Default
			all[a] = e
		}
	}
	return all
}

// withWider is what is worth keeping for other programs, which may have nothing to compute beside such calls, or no other kernels, and bound
// nothing: a choice from before with more CTAs than there may be here, as long as it is the faster one.
func (m *comm) withWider(l Learned, earlier *Learned) Learned {
	if b := l.Key.Bucket; earlier == nil || withCTAs(earlier.Action, m.mostCTAs(b), hasRails(b, m.Shape)) == earlier.Action {
		return l
	}
	if e := l.Evidence[earlier.Action]; e.N > 0 && e.MeanNs < l.CostNs {
		l.Action, l.SinceNs, l.CostNs = earlier.Action, earlier.SinceNs, e.MeanNs
	}
	return l
}
