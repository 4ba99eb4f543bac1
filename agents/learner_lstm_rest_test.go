package agents

import (
	"math/rand/v2"
	"testing"

	"dynamiccl/actions"
)

// A search is as long for who sees hundreds of calls between two proposals as for who is asked at every call, and looks
// come at twice the condition's age.
func TestSearchCountsWhatWasProposed(t *testing.T) {
	for _, c := range []struct{ room, between int }{{1, 1}, {1, 16}, {12, 12}, {12, 500}, {12, 5}} {
		s := newSearch()
		calls := 0
		until := func(rests bool) (proposals int) {
			for ; s.rests() != rests; proposals++ {
				if calls > 1_000_000 {
					t.Fatalf("%+v: rests %v for ever", c, !rests)
				}
				if !s.rests() {
					s.proposed(c.room)
				}
				for range c.between {
					calls++
					s.observe(calls)
				}
			}
			return proposals
		}
		each := min(c.room, c.between)
		if n, want := until(true), (settleCalls+each-1)/each; n != want {
			t.Errorf("%+v: rests after %d proposals, want %d", c, n, want)
		}
		for range 3 {
			ended := calls
			until(false)
			if calls < 2*(ended-c.between) || calls > 2*ended+c.between {
				t.Errorf("%+v: rested at %d calls, looked at %d", c, ended, calls)
			}
			if n, want := until(true), (lookCalls+each-1)/each; n != want {
				t.Errorf("%+v: a look of %d proposals, want %d", c, n, want)
			}
		}
	}
}

// A daemon that was kept from working sees thousands of calls at once, before it could try anything.
func TestSearchBeginsHoweverLateItIsAsked(t *testing.T) {
	l := makeLearner(t, NameLSTM, fullSet(), bucketOf(12), nil, 1).(*lstm)
	g := NewGuard(l, fullSet(), bucketOf(12), nil, DefaultGuardConfig().Budgeted(0.3))
	w := simWorld{additive, 0.02, rand.New(rand.NewPCG(1, 7))}
	tried := map[actions.Action]bool{}
	for range 30 {
		for range 300 {
			g.Observe(w.call(g.Base()))
		}
		_, trials := g.Propose(12)
		for _, a := range trials {
			tried[a] = true
			g.Observe(w.call(a))
		}
	}
	if len(tried) < 8 {
		t.Errorf("%d choices tried", len(tried))
	}
}

// Who may not try anything is not done searching: not where the guard has nothing left to lose, nor where watching must
// be saved up for.
func TestSearchWaitsForTheGuard(t *testing.T) {
	for what, c := range map[string]struct {
		share float64
		most  int
	}{"no budget": {0, 12}, "no room": {0.3, 0}} {
		l := makeLearner(t, NameLSTM, fullSet(), bucketOf(12), nil, 1).(*lstm)
		g := NewGuard(l, fullSet(), bucketOf(12), nil, DefaultGuardConfig().Budgeted(c.share))
		w := simWorld{additive, 0.02, rand.New(rand.NewPCG(1, 7))}
		for range 3 {
			g.Observe(w.call(actions.Default))
		}
		for range 1000 {
			if _, trials := g.Propose(c.most); len(trials) > 0 && trials[0] != actions.Default {
				t.Fatalf("%s: %v is tried", what, trials)
			}
			for range 16 {
				g.Observe(w.call(actions.Default))
			}
		}
		g.Reconfigure(DefaultGuardConfig().Budgeted(0.3))
		if _, trials := g.Propose(12); len(trials) == 0 {
			t.Errorf("%s: nothing is tried once it may be", what)
		}
	}
}

// Where everything costs the same there is always a little to learn; a policy must come to rest all the same, and start
// again when conditions change.
func TestPolicyComesToRest(t *testing.T) {
	l := makeLearner(t, NameLSTM, fullSet(), bucketOf(12), nil, 1).(*lstm)
	w := simWorld{func(actions.Action) float64 { return 1e5 }, 0.05, rand.New(rand.NewPCG(1, 7))}
	late := 0
	for l.sinceShift < 3000 {
		resting := l.search.rests()
		_, trials := l.Propose(12)
		if resting && len(trials) > 0 {
			t.Fatalf("%d trials while at rest, after %d calls", len(trials), l.sinceShift)
		}
		if l.sinceShift > settleCalls+lookCalls+24 {
			late += len(trials)
		}
		for _, a := range trials {
			l.Observe(w.call(a))
		}
		l.Observe(w.call(actions.Default))
	}
	if most := 3 * (lookCalls + 12); late > most {
		t.Errorf("%d trials after the first rest, want at most %d in three looks", late, most)
	}
	l.Shift(DiagnosisCongestion)
	if _, trials := l.Propose(12); len(trials) == 0 {
		t.Error("nothing is tried in a new condition")
	}
}
