package agents

import (
	"math/rand/v2"
	"testing"

	"dynamiccl/actions"
)

// overdrawn is quiet with a budget that has no room for ring: judging what ran lost too much.
func overdrawn() *Guard {
	g := quiet(DefaultGuardConfig())
	feed(g, ring, 8e5, 8)
	feed(g, actions.Default, 1e5, latestCalls)
	return g
}

// What is said to have recovered gets one call of its own way, whatever the budget has, and is not charged for it: at once, and the next one only behind a pause.
func TestWordGrantsACall(t *testing.T) {
	g := overdrawn()
	g.Stir(actions.Default)
	if _, trials := g.Propose(4); len(trials) > 0 {
		t.Fatalf("%v are tried though the budget is overdrawn: shows nothing", trials)
	}
	if g.Stir(tree); g.budget.available(g) >= 0 {
		t.Fatal("the budget is not overdrawn: shows nothing")
	}
	if _, trials := g.Propose(4); len(trials) != 1 || trials[0] != tree {
		t.Fatalf("%v has recovered, and %v are tried", tree, trials)
	}
	if _, trials := g.Propose(4); len(trials) > 0 {
		t.Errorf("%v are tried beyond the call that was granted", trials)
	}
	before := g.budget.available(g)
	g.Spend(seen(tree, 9e5)) // to warm it up
	if feed(g, tree, 9e5, 1); g.budget.available(g)-before > 0.1 || before-g.budget.available(g) > 0.1 {
		t.Errorf("%.1f calls were left, and %.1f behind the one that was granted", before, g.budget.available(g))
	}
	if feed(g, tree, 9e5, 1); before-g.budget.available(g) < 5 {
		t.Error("a call beyond it is not charged")
	}
	if asked := granted(g, comebackFirst-10, func() { g.Stir(tree) }); asked > 0 {
		t.Errorf("%d calls are granted within the pause", asked)
	}
	if asked := granted(g, 20, func() {}); asked != 1 {
		t.Errorf("%d calls are granted behind the pause", asked)
	}
}

// granted counts the trials of so many calls of the default, before each of which that is done.
func granted(g *Guard, calls int, before func()) (asked int) {
	for range calls {
		before()
		_, trials := g.Propose(4)
		asked += len(trials)
		feed(g, actions.Default, 1e5, 1)
	}
	return asked
}

// Who wants nothing to be lost gets no call granted.
func TestWordGrantsNothingWithoutABudget(t *testing.T) {
	g := overdrawn()
	g.Reconfigure(DefaultGuardConfig().Budgeted(0))
	g.Stir(tree)
	if _, trials := g.Propose(4); len(trials) > 0 {
		t.Errorf("%v are tried", trials)
	}
}

// A path that stays away is said to have recovered every 500 calls. Beyond what that costs where no way is named, it has a call granted less than
// a dozen times, and that keeps nothing else from being found.
func TestWordsThatAreNotTrue(t *testing.T) {
	const fails, end, granted = 2000, 40_000, 12
	for _, name := range adaptive() {
		for _, dear := range []float64{1, 4} { // a call of it takes 8 and 32 times the default's
			play := func(way actions.Action) (asked int, lost float64) {
				w := newFaulty(false, func(call int) bool { return call >= fails })
				cost := func(a actions.Action) float64 {
					if ns := w.cost(a); ns < 5e5 {
						return ns
					}
					return w.cost(a) * dear
				}
				g := makeGuard(t, name, w.set, bucketOf(16), nil, 1)
				sim := simWorld{cost, 0.05, rand.New(rand.NewPCG(3, 9))}
				for w.called = range end {
					if w.called > fails && w.called%500 == 0 {
						g.Stir(way)
					}
					a := sim.step(g)
					if w.called >= fails+100 {
						lost += cost(a)/1e5 - 1
						if a.Path == actions.PathGIN {
							asked++
						}
					}
				}
				return asked, lost
			}
			asked, lost := play(actions.Default)
			told, more := play(actions.Action{Path: actions.PathGIN, Backend: actions.BackendGDAKI})
			if told > asked+granted || more > lost+granted*8*dear+50 {
				t.Errorf("%s: asked for %d times and not %d, all calls lose %.0f and not %.0f of the default's", name, told, asked, more, lost)
			}
		}
	}
}

// Conditions that change before the call is heard of take nothing from what was said: one is granted again, behind the pause.
func TestWordOutlivesAChange(t *testing.T) {
	g := overdrawn()
	g.Stir(tree)
	if _, trials := g.Propose(4); len(trials) != 1 {
		t.Fatalf("%v are tried", trials)
	}
	g.Shift(DiagnosisUnknown)
	g.Reconfigure(DefaultGuardConfig().Budgeted(1e-9)) // no room for it else
	if asked := granted(g, comebackFirst+40, func() {}); asked != 1 {
		t.Errorf("%d calls are granted behind the change", asked)
	}
}

// Another way that has recovered meanwhile takes nothing from it either: first come, first tried.
func TestWordsOfSeveralWays(t *testing.T) {
	g := overdrawn()
	for _, way := range []actions.Action{{Path: actions.PathGIN, Backend: actions.BackendGDAKI}, tree, ring, tree} {
		g.Stir(way) // of the first nothing was left
	}
	for i, want := range []actions.Action{tree, ring} {
		asked := []actions.Action{}
		for range (1+i)*comebackFirst - 10 {
			_, trials := g.Propose(4)
			asked = append(asked, trials...)
			feed(g, actions.Default, 1e5, 1)
			for _, a := range trials {
				feed(g, a, 9e5, 1)
			}
		}
		if len(asked) != 1 || asked[0] != want {
			t.Errorf("%v are tried and not %v", asked, want)
		}
		for range 15 {
			feed(g, actions.Default, 1e5, 1)
		}
	}
}
