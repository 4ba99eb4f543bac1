package agents

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

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
	before := g.Estimates(nil)
	g.Shift(DiagnosisCongestion)
	if known := g.Known(); !slices.Equal(known, before) || len(known) != 2 {
		t.Errorf("after the shift %v is known, before it %v", known, before)
	}
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
	feed(g, ring, 90e3, 5)
	g.Shift(DiagnosisCongestion) // again, without a call of the default between: what ended tells nothing
	if known := g.Known(); !slices.Equal(known, before) {
		t.Errorf("after two shifts %v is known, before them %v", known, before)
	}
	feed(g, actions.Default, 150e3, 1)
	if known := g.Known(); len(known) != 1 || known[0].Action != actions.Default || known[0].N != 1 {
		t.Errorf("the default has one call in the new condition, and %v is known", known)
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

// The default costs what the choice in force gains, so a learner that wants it for ever gets it until it is known.
func TestGuardMeasuresTheDefaultEnough(t *testing.T) {
	l := &stubborn{base: ring, trials: []actions.Action{actions.Default}}
	g := guardOf(l, ring)
	feed(g, actions.Default, 100e3, 20)
	feed(g, ring, 50e3, 3)
	run := map[actions.Action]int{}
	sim := simWorld{func(a actions.Action) float64 {
		return map[actions.Action]float64{actions.Default: 100e3, ring: 50e3}[a]
	}, 0.05, rand.New(rand.NewPCG(1, 1))}
	for range 1000 {
		run[sim.step(g)]++
	}
	if run[actions.Default] > 50 {
		t.Errorf("%d of 1,000 calls run the default, and a choice of half its time is in force", run[actions.Default])
	}
}
