package agents

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// faulty is a world with a path of its own that fails for a while: at times of the default, or of all with it.
type faulty struct {
	set    []actions.Action
	fails  func(call int) bool
	all    bool // every action takes longer then
	called int
}

func newFaulty(all bool, fails func(call int) bool) *faulty {
	w := &faulty{set: []actions.Action{actions.Default}, fails: fails, all: all}
	for _, channels := range []uint8{1, 2, 4, 8, 16} {
		w.set = append(w.set, actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL, Channels: channels})
	}
	for _, ctas := range []uint8{2, 4, 8} {
		w.set = append(w.set, actions.Action{Path: actions.PathGIN, Backend: actions.BackendGDAKI, Channels: ctas})
	}
	return w
}

func (w *faulty) cost(a actions.Action) float64 {
	ns := 1e5
	switch {
	case a.Path == actions.PathGIN:
		ns = 3e4 - 1e3*float64(a.Channels)
		if w.fails(w.called) {
			ns = 8e5
		}
		return ns
	case a != actions.Default:
		ns = 0.9e5 + 1e3*float64(a.Channels)
	}
	if w.all && w.fails(w.called) {
		ns *= 2
	}
	return ns
}

// run makes calls as a daemon has them made, one trial at a time, and gives how many of each ran on GIN of those that are asked for.
func (w *faulty) run(g *Guard, calls int, sigma float64, seen func(call int, a actions.Action, excessNs float64)) {
	sim := simWorld{w.cost, sigma, rand.New(rand.NewPCG(3, 9))}
	for w.called = range calls {
		a := sim.step(g)
		seen(w.called, a, w.cost(a)-1e5)
	}
}

// A path of its own fails and comes back, and nothing else shows it: it must be in force again within the time that the failure
// took, whoever learns.
func TestPathComesBack(t *testing.T) {
	const fails, back, end = 2000, 5000, 9000
	for _, name := range adaptive() {
		w := newFaulty(false, func(call int) bool { return call >= fails && call < back })
		before, after, late := 0, 0, 0
		w.run(makeGuard(t, name, w.set, bucketOf(16), nil, 1), end, 0.05, func(call int, a actions.Action, _ float64) {
			if a.Path != actions.PathGIN {
				return
			}
			switch {
			case call >= fails-100 && call < fails:
				before++
			case call >= back-100 && call < back:
				late++
			case call >= end-100:
				after++
			}
		})
		if before < 90 {
			t.Errorf("%s: %d of 100 calls before the failure were on GIN: shows nothing", name, before)
		}
		if late > 5 || after < 90 {
			t.Errorf("%s: on GIN were %d of 100 calls at the end of the failure and %d long after it", name, late, after)
		}
	}
}

// A path that stays away is asked for ever more rarely, and costs next to nothing.
func TestPathStaysAway(t *testing.T) {
	const fails, end = 2000, 60_000
	for _, name := range adaptive() {
		w := newFaulty(false, func(call int) bool { return call >= fails })
		asked, lost := 0, 0.0
		w.run(makeGuard(t, name, w.set, bucketOf(16), nil, 1), end, 0.05, func(call int, a actions.Action, excessNs float64) {
			if call >= fails+1000 && a.Path == actions.PathGIN {
				asked++
				lost += excessNs
			}
		})
		if share := lost / (1e5 * end); asked > 20 || share > 0.002 {
			t.Errorf("%s: asked for %d times, which lost %.4f of the default's time", name, asked, share)
		}
	}
}

// Where what runs says that it is another condition than the one that had the path as better, nothing is tried for that alone.
func TestNothingComesBackElsewhere(t *testing.T) {
	w := newFaulty(true, func(call int) bool { return call >= 1000 })
	g := makeGuard(t, NameUCB, w.set, bucketOf(16), nil, 1)
	w.run(g, 1001, 0.05, func(int, actions.Action, float64) {})
	g.Shift(DiagnosisCongestion)
	feed(g, actions.Default, 2e5, 40)
	feed(g, w.set[1], 1.8e5, 4)
	feed(g, w.set[len(w.set)-1], 8e5, 2)
	g.Propose(0) // no longer what was in force before
	if best, _ := g.comeback.candidates(g); g.kept || best.i != 0 {
		t.Errorf("%s is to be tried again under load", g.arms.set[best.i])
	}
	g.Shift(DiagnosisUnknown)
	feed(g, actions.Default, 1e5, 40)
	feed(g, w.set[1], 0.91e5, 4)
	feed(g, w.set[len(w.set)-1], 8e5, 2)
	g.Propose(0)
	if best, _ := g.comeback.candidates(g); best.i == 0 || g.arms.set[best.i].Path != actions.PathGIN {
		t.Errorf("%s is to be tried again where all but it is as it was", g.arms.set[best.i])
	}
}

// A load that costs a choice its gain, by less than an alarm wants, and the default nothing, comes and goes unseen: the choice is in
// force again soon after, within the condition that never ended.
func TestChoiceComesBackWithoutAnAlarm(t *testing.T) {
	const comes, goes, end = 3000, 6000, 10_000
	for _, name := range adaptive() {
		ratio, began := 0.0, 0.0
		for seed := range uint64(5) {
			load := false
			cost := func(a actions.Action) float64 {
				switch {
				case a.Algorithm != actions.Ring || a.Protocol != actions.Simple:
					return 1e5
				case load:
					return 1.1e5
				}
				return 0.83e5 + 2e3*float64(a.Channels)
			}
			set := []actions.Action{actions.Default}
			for _, channels := range []uint8{1, 2, 4, 8} {
				set = append(set, actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.Simple, Channels: channels})
			}
			g := makeGuard(t, name, set, bucketOf(20), nil, seed)
			sim := simWorld{cost, 0.1, rand.New(rand.NewPCG(seed, 5))}
			gain := func(calls int) (gain float64) {
				for range calls {
					gain += (1e5 - cost(sim.step(g))) / 0.15e5 / float64(calls)
				}
				return gain
			}
			gain(comes - 500)
			began += gain(500)
			load = true
			gain(500)
			if lost := -gain(goes - comes - 500); lost > 0.03 {
				t.Errorf("%s: under load calls lose %.3f of what they gained before", name, lost)
			}
			load = false
			gain(end - goes - 500)
			ratio += gain(500)
		}
		if ratio /= began; began < 3 || ratio < 0.8 {
			t.Errorf("%s: %.2f of 5 before the load, and of that %.2f after it", name, began, ratio)
		}
	}
}

// quiet is a guard in a condition that has lasted, with nothing to try but what comes back: ring and tree, both left, were better than
// the default once, ring by more.
func quiet(cfg GuardConfig) *Guard {
	set := []actions.Action{actions.Default, ring, tree}
	g := NewGuard(&stubborn{}, set, bucketOf(10), nil, cfg)
	feed(g, actions.Default, 1e5, 40)
	feed(g, ring, 1.2e5, 2)
	feed(g, tree, 1.2e5, 2)
	feed(g, actions.Default, 1e5, comebackFirst)
	base := float32(g.arms.samples[0].log())
	g.comeback.had[1], g.comeback.had[2] = had{0.3, base}, had{0.2, base}
	return g
}

// What must not run now is not tried, and holds up nothing else, whether it was known before its try began.
func TestComebackPassesOverWhatIsWithheld(t *testing.T) {
	for _, begun := range []bool{false, true} {
		g := quiet(DefaultGuardConfig())
		if begun {
			if i, _ := g.comeback.due(g); i != 1 {
				t.Fatalf("%s comes back first", g.arms.set[i])
			}
		}
		g.Withhold(func(a actions.Action) bool { return a == ring })
		if _, trials := g.Propose(4); len(trials) != 1 || trials[0] != tree {
			t.Errorf("a try begun before: %v: %v, not %v", begun, trials, tree)
		}
	}
}

// The default is measured anyway: that it was cheapest in an earlier condition hides nothing else that was cheaper than what runs.
func TestComebackPassesOverTheDefault(t *testing.T) {
	g := quiet(DefaultGuardConfig())
	clear(g.comeback.had)
	feed(g, tree, 0.9e5, window)
	g.base = 2
	log := float32(g.arms.samples[2].log())
	g.memory.regimes = []regime{{logNs: []float32{log - 0.3, log - 0.2, log}, n: []uint16{9, 9, 9}}}
	if best, _ := g.comeback.candidates(g); best.i != 1 {
		t.Errorf("%s comes back, not %s", g.arms.set[best.i], ring)
	}
}

// A call that went badly, and decides nothing because of noise, grants no further ones beyond the budget.
func TestComebackAsksForWhatMayLose(t *testing.T) {
	for _, c := range []struct {
		ns     float64
		trials int
	}{{0.7e5, comebackFew}, {1.8e5, 0}} {
		g := quiet(DefaultGuardConfig().Budgeted(0))
		noisy := func() { // by 0.4
			for i := range comebackApart {
				g.Observe(seen(actions.Default, 1e5*[]float64{0.67, 1.5}[i%2]))
			}
		}
		noisy()
		g.comeback.on, g.comeback.gain = 1, 0.3
		g.Observe(seen(ring, c.ns))
		if _, trials := g.Propose(8); len(trials) > 0 {
			t.Errorf("%.0f ns: %v at once", c.ns, trials)
		}
		noisy()
		if g.comeback.on != 1 {
			t.Fatalf("%.0f ns: one call ended the try", c.ns)
		}
		if _, trials := g.Propose(8); len(trials) != c.trials {
			t.Errorf("%.0f ns: %v", c.ns, trials)
		}
	}
}

// How often a try finds what is there, and what is not, with one call of fifty delayed and the noise as it is estimated.
func TestComebackDecides(t *testing.T) {
	const guards, tries = 20, 400
	w := newFaulty(false, func(int) bool { return false })
	for _, gain := range []float64{0.1, 0.15, 0.2} {
		for _, sigma := range []float64{0.05, 0.1, 0.15, 0.2, 0.3} {
			rng := rand.New(rand.NewPCG(uint64(gain*100), uint64(sigma*100)))
			call := func(a actions.Action, log float64) state.Observation {
				if log += rng.NormFloat64() * sigma; rng.IntN(50) == 0 {
					log++
				}
				return state.Observation{Action: a, SignalNs: state.Ns(1e5 * math.Exp(log))}
			}
			wrong, right := 0.0, 0.0
			for seed := range uint64(guards) {
				g := makeGuard(t, NameUCB, w.set, bucketOf(16), nil, seed)
				for range window {
					for _, a := range w.set[:2] {
						o := call(a, 0)
						g.arms.add(&o)
					}
				}
				found := func(better float64) (share float64) {
					for range tries {
						for c := (comeback{on: 2, gain: gain, denied: make([]int, len(w.set))}); c.on != 0; {
							if o := call(w.set[2], -better); c.observe(g, 2, &o) || c.came != 0 {
								share += 1.0 / tries / guards
							}
						}
					}
					return share
				}
				wrong += found(0)
				right += found(gain)
			}
			if wrong > 0.055 || sigma <= gain && right < 0.65 {
				t.Errorf("gain %.2f, noise %.2f: found in %.3f of tries where it is, in %.3f where it is not", gain, sigma, right, wrong)
			}
		}
	}
}

// What was best is gone for good. That keeps nothing else away that was better, fails for a while and comes back.
func TestNextBestComesBackWhereTheBestIsGone(t *testing.T) {
	const gone, fails, back, end = 2000, 4000, 7000, 13_000
	call := 0
	cost := func(a actions.Action) float64 {
		switch {
		case a == ring && call < gone:
			return 0.6e5
		case a == tree && (call < fails || call >= back):
			return 0.8e5
		case a == ring, a == tree:
			return 1.3e5
		}
		return 1e5
	}
	for _, name := range adaptive() {
		if name == NameLSTM {
			continue // tries no other kernel in so small a set, and so has none that could come back
		}
		g := makeGuard(t, name, []actions.Action{actions.Default, ring, tree}, bucketOf(16), nil, 1)
		sim := simWorld{cost, 0.05, rand.New(rand.NewPCG(1, 5))}
		before, after := 0, 0
		for call = range end {
			switch a := sim.step(g); {
			case a != tree:
			case call >= fails-100 && call < fails:
				before++
			case call >= end-100:
				after++
			}
		}
		if before < 90 || after < 90 {
			t.Errorf("%s: %d of 100 calls were of the next best before it failed, %d long after it came back", name, before, after)
		}
	}
}

// A try that the budget has no room for, or whose calls nobody hears of, holds up nothing else for long.
func TestComebackGivesUpATryThatNeverRuns(t *testing.T) {
	g := quiet(DefaultGuardConfig().Budgeted(0))
	feed(g, tree, 0.9e5, 1) // now likely as good as it was, and ring is not
	if _, trials := g.Propose(4); len(trials) != 0 || g.comeback.on != 1 {
		t.Fatalf("%s is to be tried, and %v is", g.arms.set[g.comeback.on], trials)
	}
	feed(g, actions.Default, 1e5, comebackFirst)
	g.Propose(4)
	if g.comeback.on != 2 {
		t.Errorf("%s is to be tried", g.arms.set[g.comeback.on])
	}
}

// On recorded calls over sockets, which follow each other in bursts of one level, too, hardly a try finds what is not there, whether its way is said to have
// recovered or not.
func TestComebackOnRecordedNoise(t *testing.T) {
	for _, way := range []actions.Action{actions.Default, ring} {
		comesBackOnRecordedNoise(t, way)
	}
}

func comesBackOnRecordedNoise(t *testing.T, way actions.Action) {
	tries, found := 0, 0
	for _, p := range realPoints(t) {
		g := NewGuard(&stubborn{}, []actions.Action{actions.Default, ring}, bucketOf(16), nil, DefaultGuardConfig())
		var queue []actions.Action
		for call, ns := range p.phases[0] {
			on := g.comeback.on
			if call%comebackFirst == 0 && on == 0 { // ring is as good as the default, and is said to have been better
				g.Stir(way)
				g.comeback.had[1] = had{0.1, float32(g.arms.samples[0].log())}
			}
			a := actions.Default
			if len(queue) == 0 {
				_, trials := g.Propose(12)
				queue = slices.Clone(trials)
			}
			if on == 0 && g.comeback.on != 0 {
				tries++
			}
			if len(queue) > 0 {
				a, queue = queue[0], queue[1:]
			}
			g.Observe(seen(a, ns))
			if _, came := g.CameBack(); came {
				found++
			}
		}
	}
	t.Logf("%v: %d of %d", way, found, tries)
	if tries < 100 || found > tries/25 {
		t.Errorf("%d of %d tries found what was not there", found, tries)
	}
}
