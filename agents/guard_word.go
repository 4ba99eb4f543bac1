package agents

import (
	"slices"

	"dynamiccl/actions"
)

// word is that a way has recovered, by calls of other sizes that still go it, or by puts: what was left of it is asked for at once. Judging what
// was in force when its path failed takes two calls, and where these cost thirty times the default's the budget is overdrawn by sixty,
// which thousands of calls earn (4x H100, links of 0.2 GB/s: AllReduce of 64 KiB and 1 MiB were still at the default 14 s after their end). By then what
// measurements of the failure expect of a call is out of date. So one call is granted, whatever they do, and not
// charged, for else a word that is not true would keep all else from being tried; the others of its try are for the test and the budget as ever.
// Ways recover one behind the other, so words wait for each other.
type word struct {
	ways  []actions.Action // of words that were heard and not taken, the first one first
	taken actions.Action   // of the newest that was
	free  bool             // the try under way may have its first call for nothing, and has not had it yet
	gift  int              // action whose calls are not charged until that one is heard of; 0: none
	after int              // calls of the condition before which none is granted
	pause int              // calls from the last one granted until then
}

// Stir has what was better before tried again soon, the best of it first: something else has recovered, of the way that an action takes. What was
// left of that way is tried at once.
func (g *Guard) Stir(way actions.Action) {
	g.comeback.next, g.comeback.other = 0, false
	if w := &g.comeback.word; way != actions.Default && !w.has(way) {
		w.ways = append(w.ways, way)
	}
}

func (w *word) has(way actions.Action) bool {
	return slices.ContainsFunc(w.ways, func(a actions.Action) bool { return sameWay(a, way) })
}

// due reports whether a word is to be taken now. Where nothing may be lost none is.
func (w *word) due(g *Guard, calls int) bool {
	return len(w.ways) > 0 && calls >= w.after && !g.kept && g.arms.samples[0].n >= guardMinDefault && g.cfg.Income > 0
}

// take has a try be of the word. The next word is taken 256 calls later, and each time after twice as many, until a try finds what it looks for:
// however often a recovery is seen that is none, it costs a call in thousands.
func (w *word) take(calls int) {
	w.pause = min(max(2*w.pause, comebackFirst), comebackMost)
	*w = word{ways: w.ways[1:], taken: w.ways[0], free: true, after: calls + w.pause, pause: w.pause}
}

// grant reports whether a call of action i, which the budget has no room for, may be made all the same.
func (w *word) grant(i int) bool {
	if !w.free {
		return false
	}
	w.free, w.gift = false, i
	return true
}

// shift begins a new condition, so many calls after the one before it. What was taken and not heard of yet is to be taken again, behind the pause.
func (w *word) shift(calls int) {
	if (w.free || w.gift != 0) && !w.has(w.taken) {
		w.ways = slices.Insert(w.ways, 0, w.taken)
	}
	w.after = max(0, w.after-calls)
	w.over()
}

// over says that the first call of a try was heard of, or that nobody waits for it any more.
func (w *word) over() { w.free, w.gift = false, 0 }

// recovered is what was cheapest of the way that has recovered. Nobody need conclude from what runs that all is as it was then, so it may cost something else than
// it did. Where that is more, the way may, too.
func (c *comeback) recovered(g *Guard) (best candidate) {
	base, first := g.arms.samples[g.base].log(), g.arms.samples[0].log()
	consider := func(i int, logNs, gain float64) {
		s := &g.arms.samples[i]
		if sameWay(g.arms.set[i], c.word.ways[0]) && logNs < base-max(gain, best.gain) && (s.n == 0 || s.log() > base) && !g.withholds(i) {
			best = candidate{i: i, gain: base - logNs}
		}
	}
	for i, h := range c.had {
		if h.sure > 0 {
			consider(i, max(first, float64(h.base))-float64(h.sure), comebackSure)
		}
	}
	for _, r := range g.memory.regimes {
		like := 0
		if r.n[g.base] > 0 {
			like = g.base
		}
		dearer := max(0, g.arms.samples[like].log()-float64(r.logNs[like]))
		for i := range r.n {
			if r.n[i] >= 2 {
				consider(i, float64(r.logNs[i])+dearer, comebackGain)
			}
		}
	}
	return best
}
