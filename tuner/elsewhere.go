package tuner

import (
	"math/bits"

	"dynamiccl/state"
)

// Ranks on other hosts tell what calls took there, some tens of milliseconds later (nccltuner/hosts/samples.h), or nothing: a host may
// have no daemon. So a call waits for those that tell. All do until one has not, for groupWindow calls or for farSilentNs of them: what the
// first calls cost is learnt for good, and they would be charged with the others' lateness.
//
// Their clocks are nobody's here, so of each rank only the duration counts: who came last waited for nobody, and the shortest of all is
// about what it took from there, as among ranks of one host without instants.

// farSilentNs is how long calls wait for a rank elsewhere, by the daemon's clock: at 1 s a call groupWindow would be 17 minutes in which
// nothing is learnt. A connection that is lost and comes back takes seconds.
const farSilentNs state.Ns = 30e9

// far is what is known of ranks elsewhere.
type far struct {
	may     uint64     // bit r: rank r is on another host
	telling uint64     // and tells, before calls are given up, as far as is known
	last    []uint64   // the newest call that each has told of
	awaited uint64     // bit r: there was a call here since rank r told of one that is open,
	sinceNs []state.Ns // the first of them at this time
}

func farOf(ranks uint64) far {
	n := bits.Len64(ranks)
	return far{may: ranks, telling: ranks, last: make([]uint64, n), sinceNs: make([]state.Ns, n)}
}

// opens gives the ranks that a new call waits for. Time without a call is no silence.
func (f *far) opens(now state.Ns) uint64 {
	for ranks := f.telling; ranks != 0; ranks &= ranks - 1 {
		r := bits.TrailingZeros64(ranks)
		switch bit := uint64(1) << r; {
		case f.awaited&bit == 0:
			f.awaited |= bit
			f.sinceNs[r] = now
		case now-f.sinceNs[r] > farSilentNs:
			f.telling &^= bit
		}
	}
	return f.telling
}

// addFar takes a sample of a rank elsewhere; as add. One that was not waited for opens no call and is no trouble.
func (j *joiner) addFar(now state.Ns, s *Sample) (o state.Observation, bad, done bool) {
	if j.groups == nil || s.SignalNs <= 0 && !s.Slow {
		return o, false, false
	}
	bit := uint64(1) << uint(s.Rank)
	j.far.last[s.Rank] = max(j.far.last[s.Rank], s.Seq)
	j.told++
	g := &j.groups[s.Seq%groupWindow]
	if g.seq <= s.Seq {
		j.far.telling |= bit
		j.far.awaited &^= bit
	}
	if g.seq != s.Seq || g.needs&^g.seen&bit == 0 {
		return o, false, false
	}
	j.compare(g, s)
	g.slow = g.slow || s.Slow
	if at, _ := j.instant(s); !s.Slow && (g.far.signalNs == 0 || at.signalNs < g.far.signalNs) {
		g.far = at
	}
	return j.complete(now, g)
}

// lost says that a call is given up: ranks elsewhere that have told of no later one do not tell any more.
func (f *far) lost(g *group) {
	for missing := g.needs &^ g.seen & f.may; missing != 0; missing &= missing - 1 {
		if r := bits.TrailingZeros64(missing); f.last[r] < g.seq {
			f.telling &^= 1 << r
		}
	}
}

// shorten has the call take what it took for a rank elsewhere that came after all of this host, where none is done before that.
func (g *group) shorten(o *state.Observation) {
	if g.oneWay() || g.far.signalNs == 0 || g.far.signalNs >= o.SignalNs || g.far.event != g.events {
		return
	}
	o.SkewNs += o.SignalNs - g.far.signalNs
	o.SignalNs, o.CounterNs, o.FirstRank = g.far.signalNs, g.far.counterNs, g.far.rank
}
