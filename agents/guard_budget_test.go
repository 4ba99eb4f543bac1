package agents

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"dynamiccl/actions"
)

func TestBudgetedDefault(t *testing.T) {
	cfg := DefaultGuardConfig()
	if cfg.Allowance != 4 || cfg.Income != 0.01 || cfg.CarryCap != 8 || cfg != cfg.Budgeted(DefaultExploreBudget) {
		t.Errorf("%+v", cfg)
	}
	if none := cfg.Budgeted(0); none.Allowance != 0 || none.Income != 0 || none.CarryCap != 0 || none.GainShare != 0 {
		t.Errorf("no budget: %+v", none)
	}
}

// stray is a world without any of the structure that predictions believe in, in which nothing beats the default.
func stray(set []actions.Action, rng *rand.Rand) map[actions.Action]float64 {
	cost := map[actions.Action]float64{actions.Default: 1e5}
	for _, a := range set[1:] {
		cost[a] = 1e5 * math.Exp(2*rng.Float64()) // 1 to 7.4 times the default
	}
	return cost
}

// Over two thousand calls, with any share and in batches as in single steps, what exploration loses stays below the
// allowance, the share of all calls, and the error of the predictions of the batches that may be out at once.
func TestBudgetLaw(t *testing.T) {
	set := fullSet()
	for _, name := range withPolicy() {
		for _, share := range []float64{0, 0.01, 0.2} {
			for _, batch := range []int{1, 12} {
				cfg := DefaultGuardConfig().Budgeted(share)
				rng := rand.New(rand.NewPCG(uint64(batch), 6))
				cost := stray(set, rng)
				g := NewGuard(makeLearner(t, name, set, bucketOf(14), nil, 1), set, bucketOf(14), nil, cfg)
				w := simWorld{func(a actions.Action) float64 { return cost[a] }, 0.05, rng}
				lost, calls, surprise, tried := 0.0, 0, 0.0, 0
				for calls < 2000 {
					base, trials := g.Propose(batch)
					wrong := 0.0
					for _, a := range trials {
						if i := g.arms.index[a]; i != 0 {
							tried++
							wrong += max(0, cost[a]/1e5-1-g.excess(i))
						}
					}
					surprise = max(surprise, wrong)
					for _, a := range append(slices.Clone(trials), base, base) {
						lost += cost[a]/1e5 - 1
						calls++
						g.Observe(w.call(a))
						// Calls are measured with 5% noise, which is all that the guard knows of them.
						if bound := cfg.Allowance + share*float64(calls) + surprise + 0.05*lost + 0.3; lost > bound {
							t.Fatalf("%s, share %g, batches of %d: lost %.2f calls of the default in %d, want at most %.2f", name, share, batch, lost, calls, bound)
						}
					}
				}
				if share > 0.01 && name != NameDefault && tried == 0 {
					t.Errorf("%s, share %g: nothing was tried", name, share)
				}
			}
		}
	}
}

// A budget may change while it is in use: what was spent stays spent, and nothing is granted for calls before.
func TestReconfigure(t *testing.T) {
	at := func(share float64) GuardConfig { return DefaultGuardConfig().Budgeted(share) }
	g := guardOf(&stubborn{base: ring}, ring, tree)
	feed(g, actions.Default, 100e3, 200) // earned 2 beside the 4
	for _, c := range []struct{ share, want float64 }{
		{0.01, 6},
		{0.02, 10}, // 4 more granted up front
		{0.05, 22},
		{0.01, 8}, // cut to what may be carried
		{0, 0},
		{0.01, 4},
	} {
		g.Reconfigure(at(c.share))
		if left := g.budget.available(g); math.Abs(left-c.want) > 1e-9 {
			t.Fatalf("at %g there is %g left, want %g", c.share, left, c.want)
		}
	}
	feed(g, actions.Default, 100e3, 100)
	if left := g.budget.available(g); math.Abs(left-5) > 1e-9 {
		t.Errorf("100 calls at 1%% left %g, want 5", left)
	}
	g.Observe(seen(tree, 700e3))
	before := g.budget.available(g)
	g.Reconfigure(at(0.01))
	if left := g.budget.available(g); left != before || left > 0 {
		t.Errorf("%g left, before %g", left, before)
	}
}

// A daemon that reads its settings again for another's sake changes none: what was earned for long is not cut.
func TestReconfigureToTheSameChangesNothing(t *testing.T) {
	g := guardOf(&stubborn{base: ring}, ring, tree)
	feed(g, actions.Default, 100e3, 10_000)
	before := g.budget.available(g)
	g.Reconfigure(DefaultGuardConfig())
	if left := g.budget.available(g); left != before || left < 100 {
		t.Errorf("%g left, before %g", left, before)
	}
}

// When more was lost than was granted, a prediction is not enough any more: what is tried must be measured cheaper.
func TestOverdrawnBudgetTriesNothingUnmeasured(t *testing.T) {
	set := []actions.Action{actions.Default, ring, tree}
	prior := map[actions.Action]float64{actions.Default: 100e3, tree: 20e3}
	g := NewGuard(&stubborn{trials: []actions.Action{tree}}, set, bucketOf(10), prior, DefaultGuardConfig())
	feed(g, actions.Default, 100e3, 20)
	if _, trials := g.Propose(12); len(trials) != 1 {
		t.Fatalf("trials %v of an action that is expected to gain", trials)
	}
	feed(g, ring, 1e6, 3)
	if _, trials := g.Propose(12); g.budget.available(g) >= 0 || len(trials) != 0 {
		t.Errorf("%g left, and %v is tried", g.budget.available(g), trials)
	}
	feed(g, tree, 90e3, 2) // of the batch before
	if _, trials := g.Propose(12); len(trials) != 1 {
		t.Errorf("trials %v of an action that is measured cheaper", trials)
	}
}

// A batch tells no more of an action that was not measured yet than its first calls do.
func TestFewTrialsOfTheUnmeasured(t *testing.T) {
	l := &stubborn{trials: []actions.Action{ring, ring, ring, ring, tree}}
	g := NewGuard(l, []actions.Action{actions.Default, ring, tree}, bucketOf(10), nil, DefaultGuardConfig().Budgeted(0.5))
	feed(g, actions.Default, 100e3, 20)
	if _, trials := g.Propose(12); !slices.Equal(trials, []actions.Action{ring, ring, tree}) {
		t.Errorf("trials %v", trials)
	}
	feed(g, ring, 90e3, 2)
	if _, trials := g.Propose(12); len(trials) != 5 {
		t.Errorf("trials %v of what was measured", trials)
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
