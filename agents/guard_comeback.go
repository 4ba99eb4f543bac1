package agents

import (
	"math"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// comeback tries again what was better before than what runs now, in an earlier condition or in this one, when by all that still
// runs it is as it was then. What failed alone, like a path of its own, is measured by nobody once it is left, so nothing shows when
// it has recovered: the detector sees what runs, and a recheck the default. Nor does a change show that makes a choice lose by less
// than an alarm wants: the choice is left, and its condition goes on. One call of it, ever more rarely; where that is as good as it was a
// few more, until it is decided whether conditions have changed (Wald, Sequential Tests of Statistical Hypotheses, 1945).
type comeback struct {
	had    []had   // by action
	from   int     // calls of the condition when what was in force was left last
	next   int     // calls of the condition at which one is due
	on     int     // action that is being tried; 0: none
	again  int     // calls of the condition before which no more of it are due,
	lapse  int     // and at which it is given up if nothing was heard of it since
	tries  int     // that came to nothing
	denied []int   // the newest of these, by action
	other  bool    // the next one is of another way than what was cheapest
	gain   float64 // log cost by which it was better
	ratio  float64 // log likelihood ratio of its calls so far: as good as then, over no better than what runs
	n      int     // these calls
	came   int     // action that was found to be as good again; 0: none was
	word   word
	all    []candidate // scratch
	latest [comebackCalls]state.Observation
}

// had is how an action in force was when it was most surely better than the default: by what is beyond doubt, since the greatest of
// many estimates is too great.
type had struct {
	sure float32 // log cost; 0: never in force
	base float32 // the default's log cost then
}

// The first comes comebackFirst calls after what was in force has been left, or a condition has begun, the next after half as many
// calls again as there were since, so that a return is found in less time than the failure took, but no more than comebackMost apart: a
// tenfold cost is 0.1% of as many calls.
const (
	comebackFirst = 256
	comebackMost  = 8192
	comebackGain  = 0.10 // log cost that what is tried is estimated to have been below what runs, at least, ...
	comebackSure  = 0.05 // ... or beyond doubt
	comebackLike  = 0.35 // log cost by which what runs may differ from the earlier condition: as far as calls vary that are no jump
)

// comebackApart is how many calls lie behind the first of a try, and behind each three more: calls that follow each other over sockets share a level, of
// bursts of 40 that are 5 to 11% apart, and 8 of 124 tries in one go found what was not there (TestComebackOnRecordedNoise).
const comebackApart = 40

// By these, 5 tries of a hundred at most find what is not there, whatever the noise of independent calls (13 where each call has half and
// more of the deviation of the one before it), and two of three what is, up to noise as great as the
// gain (TestComebackDecides); a call that is delayed ends one.
const (
	comebackCalls = 16 // at most, and then it is not decided
	comebackFew   = 3  // at least
	comebackYes   = 3.0
	comebackNo    = -2.0
	comebackCall  = 1.5  // the most that one call says for it
	comebackNoise = 0.02 // the least that calls are taken to vary by
	comebackDoubt = 1.15 // and more than they do, since what runs is not known exactly either
)

// reset begins a new condition, so many calls after the one before it.
func (c *comeback) reset(calls int) {
	clear(c.denied)
	c.word.shift(calls)
	*c = comeback{had: c.had, denied: c.denied, came: c.came, word: c.word, all: c.all}
}

// deny ends a try that came to nothing.
func (c *comeback) deny() {
	c.tries++
	c.denied[c.on], c.on = c.tries, 0
	c.word.over()
}

// deniedAt is the newest try that came to nothing of the way that action i takes: what differs in numbers alone fails together.
func (c *comeback) deniedAt(g *Guard, i int) (at int) {
	for j, denied := range c.denied {
		if denied > at && sameWay(g.arms.set[i], g.arms.set[j]) {
			at = denied
		}
	}
	return at
}

func sameWay(a, b actions.Action) bool {
	if a.Path == actions.PathGIN && b.Path == actions.PathGIN {
		return a.Backend == b.Backend
	}
	return a.Kind() == b.Kind()
}

// note remembers what is in force, and has been judged.
func (c *comeback) note(g *Guard) {
	gain, se := g.gain(g.base)
	if sure := float32(gain - g.cfg.Confidence*se); sure > c.had[g.base].sure {
		c.had[g.base] = had{sure, float32(g.arms.samples[0].log())}
	}
}

// left says that what was in force no longer is, though conditions did not change as far as anybody knows.
func (c *comeback) left(g *Guard) {
	c.from = g.budget.made(g)
	c.next = c.from + comebackFirst
}

// good says that the calls of the one under way so far were: more of it are expected to lose nothing.
func (c *comeback) good() bool { return c.ratio > 0 }

// due gives the action that is to be tried now, 0 when none, and how often.
func (c *comeback) due(g *Guard) (i, times int) {
	calls := g.budget.made(g)
	told := c.word.due(g, calls)
	switch {
	case c.on != 0 && (g.withholds(c.on) || told && c.n == 0): // one that waits for its first call gives way to what has recovered
		c.on, c.next = 0, 0
		c.word.over()
	case c.on != 0 && calls >= c.lapse: // the budget has no room for it, or its calls are not heard of
		c.deny()
		c.next = 0
	}
	switch {
	case c.on != 0 && calls < c.again:
		return 0, 0
	case c.on != 0 && !c.good():
		return c.on, 1
	case c.on != 0:
		return c.on, min(comebackFew, comebackCalls-c.n)
	}
	for told && len(c.word.ways) > 0 {
		if best := c.recovered(g); best.i != 0 {
			c.word.take(calls)
			return c.begin(best, calls)
		}
		c.word.ways = c.word.ways[1:] // nothing of it was left
	}
	if calls < max(c.next, comebackFirst) || g.kept || g.arms.samples[0].n == 0 {
		return 0, 0
	}
	best, other := c.candidates(g)
	if c.other = other.i != 0 && !c.other; c.other {
		c.next = calls + comebackFirst
	} else {
		c.next = calls + min(max((calls-c.from)/2, comebackFirst), comebackMost)
		if other.i != 0 {
			best = other
		}
	}
	return c.begin(best, calls)
}

func (c *comeback) begin(what candidate, calls int) (i, times int) {
	c.on, c.gain = what.i, what.gain
	c.n, c.ratio, c.again, c.lapse = 0, 0, calls, calls+comebackFirst
	return c.on, min(c.on, 1)
}

// candidate is an action that was cheaper by far than what runs, in an earlier condition of the same kind or when it was in force.
type candidate struct {
	i    int // 0: none
	gain float64
	at   int // deniedAt
}

// candidates are the cheapest, and of those that go another way the cheapest of the one that was not tried for longest: what was best may be
// gone for good, and another one come back.
func (c *comeback) candidates(g *Guard) (best, other candidate) {
	c.all = c.all[:0]
	base, first := g.arms.samples[g.base].log(), g.arms.samples[0].log()
	consider := func(i int, logNs, gain float64) {
		// What is measured cheaper than the base needs no help, nor does the default, which is measured anyway.
		if s := &g.arms.samples[i]; i == 0 || logNs >= base-gain || s.n > 0 && s.log() <= base || g.withholds(i) {
			return
		}
		c.all = append(c.all, candidate{i, base - logNs, c.deniedAt(g, i)})
		if best.gain < base-logNs {
			best = c.all[len(c.all)-1]
		}
	}
	for i, h := range c.had {
		if h.sure > 0 && math.Abs(first-float64(h.base)) <= comebackLike {
			consider(i, first-float64(h.sure), comebackSure)
		}
	}
	for _, r := range g.memory.regimes {
		like := 0
		if r.n[g.base] > 0 {
			like = g.base
		}
		if math.Abs(g.arms.samples[like].log()-float64(r.logNs[like])) > comebackLike {
			continue
		}
		for i := range r.n {
			if r.n[i] >= 2 {
				consider(i, float64(r.logNs[i]), comebackGain)
			}
		}
	}
	for _, x := range c.all {
		if !sameWay(g.arms.set[x.i], g.arms.set[best.i]) && (other.i == 0 || x.at < other.at || x.at == other.at && x.gain > other.gain) {
			other = x
		}
	}
	return best, other
}

// CameBack gives an action that is as good again as it had been, once: others may be, too (Stir).
func (g *Guard) CameBack() (a actions.Action, came bool) {
	a, came = g.arms.set[g.comeback.came], g.comeback.came != 0
	g.comeback.came = 0
	return a, came
}

// observe counts a call of action i; true when it was the one that decides that conditions changed. Ends the try when it decides that
// they did not.
func (c *comeback) observe(g *Guard, i int, o *state.Observation) bool {
	if c.on == 0 || i != c.on {
		return false
	}
	c.latest[c.n] = *o
	c.n++
	c.word.over()
	calls := g.budget.made(g)
	if c.lapse = calls + comebackFirst; c.n%comebackFew == 1 {
		c.again = calls + comebackApart
	}
	noise, gain := max(comebackDoubt*g.arms.sigma(), comebackNoise), g.arms.samples[g.base].log()-math.Log(float64(o.CostNs()))
	c.ratio += min(comebackCall, c.gain/(noise*noise)*(gain-c.gain/2))
	switch {
	case c.ratio >= comebackYes && c.n >= comebackFew:
		c.on, c.came, c.word = 0, i, word{ways: c.word.ways}
		// Where the action's estimate has moved along already nothing is left to say.
		return g.arms.samples[i].log() > g.arms.samples[g.base].log()-c.gain/2
	case c.ratio <= comebackNo || c.n == comebackCalls:
		c.deny()
	}
	return false
}
