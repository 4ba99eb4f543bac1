package agents

import (
	"math"
	"slices"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// GuardConfig says how sure the guard must be and what exploration may cost. Costs are counted in calls of NCCL's
// default: an action of twice its cost loses one call, each time it runs.
type GuardConfig struct {
	Margin     float64 // a choice must be better than the default by this much (log cost) beyond doubt to be taken
	Confidence float64 // standard errors of one-sided doubt
	LossBound  float64 // a choice whose latest calls lose more than this (log cost) against the default is dropped at once

	RecheckCalls  int // calls of a choice after which the default is measured again; doubles up to RecheckLimit
	RecheckLimit  int
	RecheckTrials int

	Allowance float64 // default calls that exploration may lose at the start
	Income    float64 // and more for every call since
	GainShare float64 // and this part of what the choice gained since conditions changed
	CarryCap  float64 // most that is carried over into a new condition

	Bad      float64 // relative log cost of a sample that ends an action's trials
	Hopeless float64 // relative log cost, measured at a neighbour or predicted, from which an action is not tried
}

// DefaultGuardConfig is what serve runs.
func DefaultGuardConfig() GuardConfig {
	return GuardConfig{
		Margin: 0.02, Confidence: 1.64, LossBound: 0.05,
		RecheckCalls: 96, RecheckLimit: 1536, RecheckTrials: 4,
		GainShare: 0.5,
		Bad:       math.Log(1.5), Hopeless: math.Log(3),
	}.Budgeted(DefaultExploreBudget)
}

// DefaultExploreBudget is the share of time that exploration may lose, and allowanceCalls how many calls' worth of it
// are granted at the start: without a start nothing could be tried until hundreds of calls have earned it.
const (
	DefaultExploreBudget = 0.01
	allowanceCalls       = 400
)

// Budgeted is the configuration with another share of time that exploration may lose. 0: nothing is tried that is
// expected to lose, not even of what was gained.
func (c GuardConfig) Budgeted(share float64) GuardConfig {
	c.Income, c.Allowance = share, allowanceCalls*share
	c.CarryCap = 2 * c.Allowance
	if share == 0 {
		c.GainShare = 0
	}
	return c
}

// Guard wraps a learner and is one itself: it lets a choice through only while it is measured better than NCCL's default
// in the present condition, measures the default again on a schedule, and keeps exploration within a budget.
//
// Better means: interquartile means of log cost differ by more than Margin and Confidence standard errors. A choice that
// was taken stays until its estimate is no better than the default's, or its latest calls break LossBound. Over a change of
// conditions it stays until it can be judged anew.
type Guard struct {
	cfg     GuardConfig
	learner Learner
	arms    *arms
	memory  memory
	ended   []Estimate // of the last condition that ended with its default measured
	model   *costModel
	base    int
	kept    bool // base is from before conditions changed, and not judged since
	trusted int  // calls of base, which was measured before this guard was made, that are wanted before it is dropped; 0: it is as any other
	urgent  bool
	reverts int
	jump    jump
	jumped  bool

	budget   budget
	recheck  recheck
	chance   chance
	comeback comeback
	withheld func(actions.Action) bool // nil: nothing is
	trials   []actions.Action          // scratch
	missing  []actions.Action          // scratch
}

// NewGuard wraps the learner of a bucket; set and prior are what the learner was made with.
func NewGuard(l Learner, set []actions.Action, bucket state.Bucket, prior map[actions.Action]float64, cfg GuardConfig) *Guard {
	g := &Guard{cfg: cfg, learner: l, arms: newArms(set), model: newCostModel(set, bucket)}
	g.memory.seed(g.arms, prior)
	g.budget = budget{cfg: &g.cfg, carry: cfg.Allowance, pending: make([]uint8, len(set)), older: make([]uint8, len(set))}
	g.recheck = recheck{cfg: &g.cfg, every: cfg.RecheckCalls}
	g.comeback.had, g.comeback.denied = make([]had, len(set)), make([]int, len(set))
	return g
}

// Name is the learner's.
func (g *Guard) Name() string { return g.learner.Name() }

// Observe takes in one group call.
func (g *Guard) Observe(o state.Observation) {
	if i, ok := g.arms.index[o.Action]; ok && o.CostNs() > 0 {
		g.compare(i, float64(o.CostNs()))
	}
	i, ok := g.arms.add(&o)
	if !ok {
		return
	}
	g.learner.Observe(o)
	g.budget.charge(g, i, &o)
	if g.recheck.observe(g, i, &o) {
		g.restart(g.recheck.latest[:g.recheck.n])
		return
	}
	if g.comeback.observe(g, i, &o) {
		g.restart(g.comeback.latest[:g.comeback.n])
		return
	}
	if i == g.base && i != 0 && g.losing(i) && !g.trusts() {
		g.revert()
	}
}

// Spend takes a call out of the budget that says nothing of its action's cost.
func (g *Guard) Spend(o state.Observation) {
	if i, ok := g.arms.of(&o); ok {
		g.budget.charge(g, i, &o)
	}
}

// Samples of the choice in force that must agree before it is dropped: their lower median, so that two delayed calls
// of five do not.
const latestCalls = 5

// losing reports that the latest calls of i cost more than the default by more than the bound.
func (g *Guard) losing(i int) bool {
	s := &g.arms.samples[i]
	return g.arms.samples[0].n > 0 && s.n >= latestCalls && s.recent(latestCalls)-g.arms.samples[0].log() > g.cfg.LossBound
}

// revert goes back to the default at once. As long as the latest calls of the choice are those that lost, it stays out.
func (g *Guard) revert() {
	g.take(0)
	g.kept = false
	g.urgent = true
	g.reverts++
}

// Urgent reports that the base of the last Propose must not stay in force: propose again now.
func (g *Guard) Urgent() bool { return g.urgent }

// Reverts counts the choices that were dropped because they lost against the default.
func (g *Guard) Reverts() int { return g.reverts }

// Shift says that conditions changed: nothing is measured better than the default until it is measured again. The choice
// in force stays for the handful of calls until it is judged anew. Most changes are dear for all actions alike, or none at
// all; going back to the default would take as long as judging does, and lose a gain each time that nothing was wrong.
func (g *Guard) Shift(d Diagnosis) {
	g.comeback.reset(g.budget.made(g))
	g.budget.shift(g)
	g.memory.save(g.arms)
	if g.arms.samples[0].n > 0 {
		g.ended = g.Estimates(g.ended[:0])
	}
	g.wearTrust()
	g.arms.reset()
	g.recheck.reset()
	g.chance.reset()
	g.jump, g.jumped = jump{}, false
	g.kept = g.base != 0
	g.urgent = g.urgent || g.kept
	g.learner.Shift(d)
}

// Withhold has no trial be made of actions that it says must not run now; what is in force may all the same be one of them.
func (g *Guard) Withhold(withheld func(actions.Action) bool) { g.withheld = withheld }

func (g *Guard) withholds(i int) bool { return g.Withholds(g.arms.set[i]) }

// Withholds says that no trial may be made of an action now.
func (g *Guard) Withholds(a actions.Action) bool { return g.withheld != nil && g.withheld(a) }

// Reconfigure takes over another configuration from the next Propose.
func (g *Guard) Reconfigure(cfg GuardConfig) { g.budget.reconfigure(g, cfg) }

// restart is a shift that the guard saw itself: the cost of an action moved that is not in force. The calls that showed it are
// the first of the new condition.
func (g *Guard) restart(latest []state.Observation) {
	latest = slices.Clone(latest) // of what Shift resets
	if latest[0].Action == actions.Default && g.base != 0 && g.arms.samples[0].recent(len(latest)) < g.arms.samples[g.base].log() {
		g.base, g.trusted, g.urgent = 0, 0, true // the default is cheaper now than the choice was
	}
	g.Shift(DiagnosisUnknown)
	for _, o := range latest {
		g.arms.add(&o)
		g.learner.Observe(o)
	}
}

// gain is an action's measured advantage over the default in log cost and the standard error of it.
func (g *Guard) gain(i int) (gain, se float64) {
	sigma := g.arms.sigma()
	return g.arms.samples[0].log() - g.arms.samples[i].log(),
		math.Sqrt(g.arms.variance(0, sigma) + g.arms.variance(i, sigma))
}

// Samples that a comparison needs on either side.
const (
	guardMinDefault = 3
	guardMinChoice  = 2
)

// judged reports whether i and the default have been measured often enough to compare.
func (g *Guard) judged(i int) bool {
	return g.arms.samples[0].n >= guardMinDefault && g.arms.samples[i].n >= guardMinChoice
}

// toJudge gives what a batch of so many trials must have to judge a choice that was kept, beyond what the learner wants
// anyway; want is its base.
func (g *Guard) toJudge(want int, wanted []actions.Action, maxTrials int) []actions.Action {
	g.missing = g.missing[:0]
	if !g.kept {
		return g.toTrust(want, maxTrials)
	}
	wanted = wanted[:min(len(wanted), maxTrials)]
	for _, need := range [...]struct{ i, n int }{{0, guardMinDefault}, {g.base, guardMinChoice}} {
		for _, a := range wanted {
			if a == g.arms.set[need.i] {
				need.n--
			}
		}
		for range need.n - g.arms.samples[need.i].n {
			g.missing = append(g.missing, g.arms.set[need.i])
		}
	}
	return g.missing[:min(len(g.missing), maxTrials)]
}

// take has i be in force. Choices that differ in numbers alone take each other's place now and then.
func (g *Guard) take(i int) {
	if g.base != 0 && !sameWay(g.arms.set[g.base], g.arms.set[i]) {
		g.comeback.left(g)
	}
	if i != g.base {
		g.trusted = 0
	}
	g.base = i
}

// approve reports whether i may be in force.
func (g *Guard) approve(i int) bool {
	if i == 0 {
		return true
	}
	if !g.judged(i) || g.losing(i) {
		return false
	}
	gain, se := g.gain(i)
	if i == g.base {
		return gain > 0
	}
	return gain-g.cfg.Confidence*se > g.cfg.Margin
}

// Propose gives the base, which is NCCL's default unless another action is measured better, and at most maxTrials
// trials: those that are due to be measured again, one that was measured only once and had bad luck perhaps, one that was better
// before and may be again, then those of the learner's that the budget allows.
func (g *Guard) Propose(maxTrials int) (actions.Action, []actions.Action) {
	g.urgent = false
	maxTrials = max(0, maxTrials)
	want, trials := g.learner.Propose(maxTrials + len(g.arms.set))
	w, known := g.arms.index[want]
	g.kept = g.kept && !g.judged(g.base)
	if !g.kept && !g.trusts() { // as long as it is kept defaults may be under way, behind a program that runs ahead
		g.trusted = 0
	}
	switch {
	case g.kept, g.trusted > 0:
	case known && g.approve(w):
		g.take(w)
	case !g.approve(g.base):
		g.take(0)
	}
	if g.base != 0 && !g.kept {
		g.comeback.note(g)
	}
	g.trials = g.trials[:0]
	g.budget.open(g)
	missing := g.toJudge(w, trials, maxTrials)
	maxTrials -= len(missing)
	again, times := g.recheck.due(g, w)
	for range min(times, maxTrials) {
		g.trials = append(g.trials, g.arms.set[again])
	}
	g.recheck.owe(again, times-len(g.trials))
	once := g.chance.due(g)
	back, calls := g.comeback.due(g)
	if len(trials) > 0 || once > 0 || back > 0 {
		g.model.refresh(g.arms, &g.memory)
	}
	if once > 0 && len(g.trials) < maxTrials && g.budget.reserve(g, once) {
		g.trials = append(g.trials, g.arms.set[once])
	}
	if room := maxTrials - len(g.trials); back > 0 && room > 0 && !g.withholds(back) && (g.comeback.good() || g.budget.reserve(g, back) || g.comeback.word.grant(back)) {
		for range min(calls, room) {
			g.trials = append(g.trials, g.arms.set[back])
		}
	}
	granted := len(g.trials)
	for _, a := range trials {
		if len(g.trials) >= maxTrials {
			break
		}
		i, ok := g.arms.index[a]
		switch {
		case !ok:
		case i == 0 && g.base != 0 && g.arms.samples[0].n >= window: // as well known as it can be: more of it is for the recheck to say
		case i == 0, !g.withholds(i) && g.worth(i) && g.budget.reserve(g, i):
			g.trials = append(g.trials, a)
		}
	}
	if l, ok := g.learner.(Granted); ok && len(trials) > 0 {
		l.Granted(len(g.trials) - granted)
	}
	g.trials = append(g.trials[:min(len(g.trials), maxTrials)], missing...)
	return g.arms.set[g.base], g.trials
}
