package agents

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// stubborn always wants the same: what a guard is there for.
type stubborn struct {
	base   actions.Action
	trials []actions.Action
	shifts int
}

func (s *stubborn) Name() string                                   { return "stubborn" }
func (s *stubborn) Observe(state.Observation)                      {}
func (s *stubborn) Propose(int) (actions.Action, []actions.Action) { return s.base, s.trials }
func (s *stubborn) Shift(Diagnosis)                                { s.shifts++ }

var (
	ring = actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL, Channels: 8}
	tree = actions.Action{Path: actions.PathCollective, Algorithm: actions.Tree, Protocol: actions.Simple, Channels: 8}
)

func guardOf(l Learner, set ...actions.Action) *Guard {
	return NewGuard(l, append([]actions.Action{actions.Default}, set...), bucketOf(10), nil, DefaultGuardConfig())
}

func feed(g *Guard, a actions.Action, ns float64, times int) {
	for i := range times {
		g.Observe(seen(a, ns*(1+0.01*float64(i%3-1))))
	}
}

func TestGuardHysteresis(t *testing.T) {
	for _, c := range []struct {
		name      string
		cost      float64
		n         int
		inForce   bool
		thereupon float64 // its later cost
		stays     bool
	}{
		{"never measured", 0, 0, false, 0, false},
		{"once", 50, 1, false, 0, false},
		{"twice, half the cost", 50, 2, true, 50, true},
		{"better, but not beyond doubt", 95, 3, false, 0, false},
		{"10% better beyond doubt", 90, 16, true, 90, true},
		{"1% better: below the margin", 99, 32, false, 0, false},
		{"10% better, then as good: stays", 90, 16, true, 99, true},
		{"10% better, then worse", 90, 16, true, 103, false},
	} {
		g := guardOf(&stubborn{base: ring}, ring)
		feed(g, actions.Default, 100e3, 20)
		feed(g, ring, c.cost*1e3, c.n)
		base, _ := g.Propose(12)
		if (base == ring) != c.inForce {
			t.Errorf("%s: base %s", c.name, base)
			continue
		}
		if c.inForce {
			feed(g, ring, c.thereupon*1e3, 40)
			if base, _ = g.Propose(12); (base == ring) != c.stays {
				t.Errorf("%s: base %s afterwards", c.name, base)
			}
		}
	}
}

func TestGuardNeedsTheDefaultMeasured(t *testing.T) {
	g := guardOf(&stubborn{base: ring}, ring)
	feed(g, ring, 1, 32)
	feed(g, actions.Default, 1e9, guardMinDefault-1)
	if base, _ := g.Propose(12); base != actions.Default {
		t.Errorf("%s is in force against a default of two samples", base)
	}
}

func TestGuardRevertsAtOnce(t *testing.T) {
	g := guardOf(&stubborn{base: ring}, ring)
	feed(g, actions.Default, 100e3, 20)
	feed(g, ring, 80e3, 32)
	if base, _ := g.Propose(12); base != ring {
		t.Fatal("not in force")
	}
	feed(g, ring, 1e6, 2) // two delayed calls are no loss
	feed(g, ring, 80e3, 3)
	if g.Urgent() || g.Base() != ring {
		t.Fatal("two delayed calls of five dropped the choice")
	}
	feed(g, ring, 110e3, latestCalls)
	if !g.Urgent() || g.Base() != actions.Default || g.Reverts() != 1 {
		t.Fatalf("after five losing calls: base %s, urgent %v, %d reverts", g.Base(), g.Urgent(), g.Reverts())
	}
	if base, _ := g.Propose(12); base != actions.Default {
		t.Errorf("%s is back although its latest calls lost", base)
	}
	// On the schedule it is measured again, and comes back when it is better again.
	feed(g, actions.Default, 100e3, DefaultGuardConfig().RecheckCalls)
	_, trials := g.Propose(12)
	if n := len(trials); n != DefaultGuardConfig().RecheckTrials || trials[0] != ring {
		t.Fatalf("trials %v", trials)
	}
	feed(g, ring, 80e3, len(trials))
	if base, _ := g.Propose(12); base != ring {
		t.Errorf("base %s although the choice is better again", base)
	}
}

func TestGuardMeasuresTheDefaultAgain(t *testing.T) {
	l := &stubborn{base: ring}
	g := guardOf(l, ring)
	feed(g, actions.Default, 100e3, 20)
	feed(g, ring, 80e3, 8)
	g.Propose(12)
	calls, rounds := 0, []int{}
	for len(rounds) < 4 && calls < 5000 {
		feed(g, ring, 80e3, 1)
		calls++
		_, trials := g.Propose(12)
		if len(trials) > 0 {
			if trials[0] != actions.Default || len(trials) != DefaultGuardConfig().RecheckTrials {
				t.Fatalf("trials %v", trials)
			}
			feed(g, actions.Default, 100e3, len(trials))
			rounds, calls = append(rounds, calls), 0
		}
	}
	for i := 1; i < len(rounds); i++ {
		if len(rounds) < 4 || rounds[i] < 2*rounds[i-1]-10 {
			t.Fatalf("the default was measured again after %v calls, want it ever more rarely", rounds)
		}
	}
	if g.Base() != ring || l.shifts != 0 {
		t.Errorf("base %s, %d shifts: an unchanged default changed something", g.Base(), l.shifts)
	}
}

// Nothing else can notice a default that got cheaper: it does not run.
func TestGuardSeesTheDefaultChange(t *testing.T) {
	l := &stubborn{base: ring}
	g := guardOf(l, ring)
	feed(g, actions.Default, 100e3, 20)
	feed(g, ring, 80e3, 32)
	g.Propose(12)
	feed(g, ring, 80e3, DefaultGuardConfig().RecheckCalls)
	_, trials := g.Propose(12)
	feed(g, actions.Default, 60e3, len(trials))
	if l.shifts != 1 || g.Base() != actions.Default || !g.Urgent() {
		t.Errorf("%d shifts, base %s, urgent %v", l.shifts, g.Base(), g.Urgent())
	}
	if e := g.Estimate(actions.Default); e.N != len(trials) || math.Abs(e.MeanNs-60e3) > 1e3 {
		t.Errorf("the round that showed the change is not the new condition's: %+v", e)
	}
}

func TestGuardShift(t *testing.T) {
	l := &stubborn{base: ring}
	g := guardOf(l, ring)
	feed(g, actions.Default, 100e3, 20)
	feed(g, ring, 80e3, 32)
	g.Propose(12)
	g.Shift(DiagnosisCongestion)
	base, trials := g.Propose(12)
	if base != ring || l.shifts != 1 || len(g.Estimates(nil)) != 0 {
		t.Errorf("base %s, %d shifts, estimates %v", base, l.shifts, g.Estimates(nil))
	}
	if want := []actions.Action{actions.Default, actions.Default, actions.Default, ring, ring}; !slices.Equal(trials, want) {
		t.Errorf("trials %v, want first what is missing to judge %s", trials, ring)
	}
	if r, low, high := g.SpeedUp(); r != 1 || low != 1 || high != 1 {
		t.Errorf("speed-up of the default over itself: %f (%f to %f)", r, low, high)
	}
}

// A choice that was kept over a shift is judged like any other as soon as it and the default are measured again.
func TestGuardJudgesWhatItKept(t *testing.T) {
	for _, c := range []struct {
		now  float64 // the choice's cost, the default's is 150
		base actions.Action
	}{{120e3, ring}, {149e3, ring}, {170e3, actions.Default}} {
		g := guardOf(&stubborn{base: ring}, ring)
		feed(g, actions.Default, 100e3, 20)
		feed(g, ring, 80e3, 32)
		g.Propose(12)
		g.Shift(DiagnosisCongestion)
		g.Propose(12)
		feed(g, actions.Default, 150e3, 2)
		feed(g, ring, c.now, 2)
		if base, trials := g.Propose(12); base != ring || !slices.Contains(trials, actions.Default) {
			t.Errorf("now %.0f: base %s, trials %v before it could be judged", c.now, base, trials)
		}
		feed(g, actions.Default, 150e3, 1)
		if base, _ := g.Propose(12); base != c.base {
			t.Errorf("now %.0f, the default 150000: base %s, want %s", c.now, base, c.base)
		}
	}
}

// A choice that was dropped because it lost is not kept.
func TestGuardKeepsNoLoser(t *testing.T) {
	g := guardOf(&stubborn{base: ring}, ring)
	feed(g, actions.Default, 100e3, 20)
	feed(g, ring, 80e3, 32)
	g.Propose(12)
	feed(g, ring, 120e3, latestCalls)
	g.Shift(DiagnosisCongestion)
	if base, _ := g.Propose(12); base != actions.Default {
		t.Errorf("base %s after it lost", base)
	}
}

func TestGuardEndsTrials(t *testing.T) {
	few := func(n uint8) actions.Action { a := ring; a.Channels = n; return a }
	for _, c := range []struct {
		name     string
		measured actions.Action
		cost     float64 // the default costs 100
		trial    actions.Action
		allowed  bool
	}{
		{"fresh", tree, 100, few(8), true},
		{"good sample", few(8), 90, few(8), true},
		{"one bad sample", few(8), 151, few(8), false},
		{"hopeless neighbour below", few(4), 301, few(8), false},
		{"hopeless neighbour above", few(16), 301, few(8), false},
		{"tolerable neighbour", few(16), 115, few(8), true},
		{"hopeless, but of another algorithm", tree, 301, few(8), true},
	} {
		g := guardOf(&stubborn{trials: []actions.Action{c.trial, c.trial, actions.Default}}, few(4), few(8), few(16), tree)
		feed(g, actions.Default, 100e3, 50)
		g.Observe(seen(c.measured, c.cost*1e3))
		_, trials := g.Propose(12)
		if slices.Contains(trials, c.trial) != c.allowed || !slices.Contains(trials, actions.Default) {
			t.Errorf("%s: trials %v", c.name, trials)
		}
	}
}

// No batch may be expected to lose more than what is left, whatever the learner wants.
func TestBudgetOfABatch(t *testing.T) {
	set := fullSet()
	rapidCheck(t, func(t *rapid.T) {
		l := &stubborn{}
		g := NewGuard(l, set, bucketOf(rapid.Uint8Range(8, 30).Draw(t, "size")), nil, DefaultGuardConfig())
		feed(g, actions.Default, 1e5, rapid.IntRange(1, 40).Draw(t, "default"))
		for range rapid.IntRange(1, 12).Draw(t, "batches") {
			l.trials = rapid.SliceOfN(rapid.SampledFrom(set), 0, 40).Draw(t, "wanted")
			before := g.budget.available(g)
			_, trials := g.Propose(12)
			expected := 0.0
			for _, a := range trials {
				if i := g.arms.index[a]; i != 0 {
					expected += g.excess(i)
				}
			}
			if expected > max(0, before)+1e-9 {
				t.Fatalf("a batch expected to lose %f of %f: %v", expected, before, trials)
			}
			for _, a := range slices.Clone(trials) {
				g.Observe(seen(a, 1e5*math.Exp(rapid.Float64Range(-0.7, 1.5).Draw(t, "cost"))))
			}
		}
	})
}

// The sum stays within bounds even where nothing is better than the default and predictions are wrong: costs are drawn
// without any of the structure that the model believes in.
func TestBudgetOverAll(t *testing.T) {
	set := fullSet()
	cfg := DefaultGuardConfig()
	for _, name := range adaptive() {
		for seed := range uint64(20) {
			rng := rand.New(rand.NewPCG(seed, 5))
			cost := map[actions.Action]float64{actions.Default: 1e5}
			for _, a := range set[1:] {
				cost[a] = 1e5 * math.Exp(2*rng.Float64()) // 1 to 7.4 times the default
			}
			g := makeGuard(t, name, set, bucketOf(14), nil, seed)
			w := simWorld{func(a actions.Action) float64 { return cost[a] }, 0.05, rng}
			lost, calls, surprise := 0.0, 0, 0.0
			run := func(a actions.Action) {
				lost += cost[a]/1e5 - 1
				calls++
				g.Observe(w.call(a))
			}
			for range 100 {
				base, trials := g.Propose(12)
				batch := 0.0
				for _, a := range trials {
					if i := g.arms.index[a]; i != 0 {
						batch += max(0, cost[a]/1e5-1-g.excess(i))
					}
				}
				surprise = max(surprise, batch)
				for _, a := range slices.Clone(trials) {
					run(a)
				}
				for range 8 {
					run(base)
				}
			}
			// What a batch loses more than was expected is known after it: the worst batch counts once.
			if bound := cfg.Allowance + cfg.Income*float64(calls) + surprise; lost > bound {
				t.Errorf("%s, seed %d: lost %.1f calls of the default in %d calls, want at most %.1f", name, seed, lost, calls, bound)
			}
			if math.Abs(lost-g.Lost()) > 0.03*float64(calls)+1 {
				t.Errorf("%s, seed %d: lost %.1f, the guard says %.1f", name, seed, lost, g.Lost())
			}
		}
	}
}

// A condition that flips back and forth must not grant a new allowance each time.
func TestBudgetUnderFlapping(t *testing.T) {
	cfg := DefaultGuardConfig()
	g := makeGuard(t, NameUCB, fullSet(), bucketOf(14), nil, 1)
	rng := rand.New(rand.NewPCG(1, 1))
	lost, calls := 0.0, 0
	for range 200 {
		for range 2 {
			base, trials := g.Propose(12)
			for _, a := range append(slices.Clone(trials), base, base, base, base, base, base) {
				c := 1.0
				if a != actions.Default {
					c = 1.45
				}
				lost += c - 1
				calls++
				g.Observe(seen(a, 1e5*c*math.Exp(0.05*rng.NormFloat64())))
			}
		}
		g.Shift(DiagnosisUnknown)
	}
	if bound := cfg.Allowance + 2*cfg.Income*float64(calls) + 12; lost > bound {
		t.Errorf("200 shifts lost %.0f calls of the default in %d calls, want at most %.0f", lost, calls, bound)
	}
}

// What the model holds for hopeless is not tried even where the budget would allow it.
func TestGuardBelievesTheModel(t *testing.T) {
	set := fullSet()
	one, most := set[find(t, set, "Ring/LL/1")], set[find(t, set, "Ring/Simple/32")]
	cfg := DefaultGuardConfig()
	cfg.Allowance = 1e6
	g := NewGuard(&stubborn{trials: []actions.Action{one, most}}, set, bucketOf(28), nil, cfg)
	feed(g, actions.Default, 1e6, 20)
	if _, trials := g.Propose(12); !slices.Equal(trials, []actions.Action{most}) {
		t.Errorf("trials %v", trials)
	}
}

func TestGuardRemembersWhatWasHopeless(t *testing.T) {
	cfg := DefaultGuardConfig()
	cfg.Allowance, cfg.CarryCap = 1e6, 1e6 // not the budget's doing
	g := NewGuard(&stubborn{trials: []actions.Action{ring}}, []actions.Action{actions.Default, ring, tree}, bucketOf(10), nil, cfg)
	feed(g, actions.Default, 100e3, 20)
	if _, trials := g.Propose(12); len(trials) != 1 {
		t.Fatalf("trials %v of an action that nothing is known of", trials)
	}
	feed(g, ring, 600e3, 4)
	g.Shift(DiagnosisUnknown)
	feed(g, actions.Default, 100e3, 4)
	if _, trials := g.Propose(12); len(trials) != 0 {
		t.Errorf("%v is tried again in a condition in which it cost six times the default", trials)
	}
}

// Trials that are still under way count when the next batch is planned.
func TestBudgetCountsWhatIsUnderWay(t *testing.T) {
	set := fullSet()
	l := &stubborn{trials: set[1:]}
	g := NewGuard(l, set, bucketOf(12), nil, DefaultGuardConfig())
	feed(g, actions.Default, 1e5, 20)
	_, first := g.Propose(12)
	n := len(first)
	_, second := g.Propose(12)
	if n == 0 || len(second) >= n {
		t.Errorf("%d trials, then %d before any of them was seen", n, len(second))
	}
}

// A shift carries what is left, and at most CarryCap.
func TestBudgetCarry(t *testing.T) {
	cfg := DefaultGuardConfig()
	g := guardOf(&stubborn{base: ring}, ring, tree)
	feed(g, actions.Default, 100e3, 10)
	g.Observe(seen(tree, 350e3)) // 2.5 of the allowance of 4
	g.Shift(DiagnosisUnknown)
	if want := cfg.Allowance + 11*cfg.Income - 2.5; math.Abs(g.budget.carry-want) > 0.05 {
		t.Errorf("carried %f, want %f", g.budget.carry, want)
	}
	feed(g, actions.Default, 100e3, 10)
	feed(g, ring, 50e3, 1000)
	g.Shift(DiagnosisUnknown)
	if g.budget.carry != cfg.CarryCap {
		t.Errorf("carried %f of the gains of 1000 calls", g.budget.carry)
	}
	feed(g, actions.Default, 100e3, 100)
	feed(g, ring, 1e9, 20) // a condition a thousand times slower, not yet known to be one
	g.Shift(DiagnosisCPUContention)
	if g.budget.carry < 1 || g.budget.carry > cfg.Allowance {
		t.Errorf("carried %f: the calls that showed a change were charged to exploration", g.budget.carry)
	}
}
