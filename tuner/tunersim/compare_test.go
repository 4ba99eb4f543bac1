package tunersim

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
)

func traces(t testing.TB, names ...string) []Trace {
	t.Helper()
	var all []Trace
	for _, n := range names {
		all = append(all, Trace{strings.TrimSuffix(n, ".csv"), load(t, n)})
	}
	return all
}

func comparison(t testing.TB, calls int, sigma float64) Comparison {
	t.Helper()
	design, err := agents.NewDesign(agents.DefaultParams())
	if err != nil {
		t.Fatal(err)
	}
	return Comparison{Calls: calls, Noise: NoiseOf(sigma), Guard: agents.DefaultGuardConfig(), Design: design}
}

func contender(t testing.TB, name string) Contender {
	t.Helper()
	if slices.Contains(KnowingLearners(), name) {
		return Contender{Name: name}
	}
	l, err := agents.New(name)
	if err != nil {
		t.Fatal(err)
	}
	return Contender{Name: name, New: l}
}

func scenarios(t testing.TB, traces []Trace, symmetric bool) []*Scenario {
	t.Helper()
	all, err := Scenarios(traces, symmetric)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func score(t testing.TB, c Comparison, s *Scenario, learner string, seed uint64) (Score, []Score) {
	t.Helper()
	p, err := c.Play(t.Context(), s, contender(t, learner), seed)
	if err != nil {
		t.Fatal(err)
	}
	return p.Scores()
}

func TestScenariosOfRecordedTables(t *testing.T) {
	var got []string
	for _, s := range scenarios(t, traces(t, quietFile, networkFile, cpuFile, nvlinkFile), false) {
		got = append(got, s.Trace[4:6]+s.Trace[len(s.Trace)-4:]+" "+s.Condition)
		want := map[string]int{"quiet": 18, "network-load": 18, "quiet->network-load": 18, "network-load->quiet": 18}[s.Condition]
		if strings.HasPrefix(s.Trace, "h200x8") {
			want = 30
		}
		if want != 0 && s.Buckets() != want || want == 0 && s.Buckets() != 4 {
			t.Errorf("%s %s: %d buckets", s.Trace, s.Condition, s.Buckets())
		}
		for _, b := range s.buckets {
			if b.set[0] != actions.Default || len(b.costNs) != s.conditions || len(b.set) < 19 {
				t.Errorf("%s %s %s: set of %d actions, %d conditions", s.Trace, s.Condition, b.Bucket, len(b.set), len(b.costNs))
			}
		}
	}
	want := []string{"x4uiet quiet", "x4load network-load", "x4load cpu-load", "x8link quiet", "x4load quiet->network-load", "x4load quiet->cpu-load",
		"x4uiet network-load->quiet", "x4load network-load->cpu-load", "x4uiet cpu-load->quiet", "x4load cpu-load->network-load"}
	if !slices.Equal(got, want) {
		t.Errorf("scenarios %q, want %q", got, want)
	}
}

func TestSymmetricKernelsJoinOnDemand(t *testing.T) {
	symmetric := actions.Action{Path: actions.PathSymmetric}
	count := func(on bool) (n int) {
		for _, b := range scenarios(t, traces(t, nvlinkFile), on)[0].buckets {
			if slices.Contains(b.set, symmetric) {
				n++
			}
		}
		return n
	}
	if off, on := count(false), count(true); off != 0 || on == 0 {
		t.Errorf("%d buckets have symmetric kernels without asking, %d with", off, on)
	}
}

func TestScenariosRejectTwoTracesOfOneName(t *testing.T) {
	two := append(traces(t, quietFile), traces(t, quietFile)...)
	if _, err := Scenarios(two, false); !errors.Is(err, ErrBadComparison) {
		t.Errorf("%v", err)
	}
}

// The learners that know the table are where they must be, to the last bit.
func TestKnowingLearners(t *testing.T) {
	c := comparison(t, 120, 0.15)
	for _, s := range scenarios(t, traces(t, quietFile, networkFile), false) {
		oracle, _ := score(t, c, s, LearnerOracle, 1)
		if oracle.CostOverOracle != 1 || oracle.Regret != 0 || oracle.Regret64 != 0 || oracle.FinalOverOracle != 1 || oracle.CallsToWithin5 != 0 ||
			oracle.Reached5 != 1 || oracle.SpeedAt32Worst != 1 || oracle.Within3AtEnd != 1 || oracle.WorstWindow100 > 1 {
			t.Errorf("oracle of %s: %+v", s.Condition, oracle)
		}
		def, _ := score(t, c, s, LearnerDefault, 1)
		if def.CostOverDefault != 1 || def.CostOverDefaultMax != 1 || def.WorstWindow100 != 1 || def.CostOverOracle < oracle.CostOverOracle {
			t.Errorf("default of %s: %+v", s.Condition, def)
		}
		// The learner of that name that the daemon has does the same, behind the guard.
		played, err := c.Play(t.Context(), s, Contender{Name: LearnerDefault, New: contender(t, agents.NameCoordinateDescent).New}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if all, _ := played.Scores(); all == def {
			t.Error("coordinate descent is the default learner")
		}
		registered, err := agents.New(agents.NameDefault)
		if err != nil {
			t.Fatal(err)
		}
		if played, err = c.Play(t.Context(), s, Contender{Name: LearnerDefault, New: registered}, 1); err != nil {
			t.Fatal(err)
		}
		if all, _ := played.Scores(); all != def {
			t.Errorf("the default learner in a session: %+v, knowing: %+v", all, def)
		}
		static, _ := score(t, c, s, LearnerStatic, 1)
		if static.CostOverDefault > 1 || static.CostOverOracle < 1 {
			t.Errorf("static of %s: %+v", s.Condition, static)
		}
	}
}

// tiny is a table of one size of two collectives.
const tiny = header +
	"m,2.30.0,2,1,p2p,quiet,AllReduce,1000,default,-,-,-,10\nm,2.30.0,2,1,p2p,quiet,AllReduce,1000,lsa,-,-,4,5\nm,2.30.0,2,1,p2p,quiet,AllReduce,1000,collective,Ring,LL,1,20\n" +
	"m,2.30.0,2,1,p2p,quiet,Broadcast,4096,default,-,-,-,10\nm,2.30.0,2,1,p2p,quiet,Broadcast,4096,collective,Ring,LL,1,8\n"

// scripted plays given actions, one a call.
func scripted(t *testing.T, calls ...int) Score {
	t.Helper()
	table, err := ReadTable(strings.NewReader(tiny))
	if err != nil {
		t.Fatal(err)
	}
	s := scenarios(t, []Trace{{"tiny", table}}, false)[0]
	s.buckets = slices.DeleteFunc(s.buckets, func(k scene) bool { return k.Collective != actions.AllReduce })
	p := &Played{scenario: s, costNs: [][]float64{nil}}
	for _, a := range calls {
		p.costNs[0] = append(p.costNs[0], s.buckets[0].costNs[0][a])
	}
	all, each := p.Scores()
	if each[0].Bytes != 1000 || each[0].Collective != "AllReduce" {
		t.Fatalf("%+v", each[0])
	}
	return all
}

func times(n, action int) []int { return slices.Repeat([]int{action}, n) }

// Costs are 10 (default), 5 (best) and 20.
func TestScoresByHand(t *testing.T) {
	s := scripted(t, slices.Concat(times(3, 0), times(1, 2), times(20, 1), times(1, 2), times(15, 1))...)
	total := 3*10.0 + 2*20 + 35*5
	for name, c := range map[string][2]float64{
		"calls":               {float64(s.Calls), 40},
		"cost over oracle":    {s.CostOverOracle, total / 200},
		"final":               {s.FinalOverOracle, 1},
		"cost over default":   {s.CostOverDefault, total / 400},
		"worst window":        {s.WorstWindow100, total / 400},
		"calls to within 5%":  {s.CallsToWithin5, 4}, // the trial at call 24 is one of 36
		"reached":             {s.Reached5, 1},
		"regret":              {s.Regret, total/5 - 40},
		"speed at 32":         {s.SpeedAt32, 1},
		"97% at the end":      {s.Within3AtEnd, 1},
		"regret of 64 or all": {s.Regret64, total/5 - 40},
	} {
		if math.Abs(c[0]-c[1]) > 1e-12 {
			t.Errorf("%s: %g, want %g", name, c[0], c[1])
		}
	}
	for name, c := range map[string]struct {
		calls []int
		want  float64
	}{
		"never":                  {times(20, 0), 20},
		"last seven calls":       {slices.Concat(times(20, 0), times(7, 1)), 27},
		"last eight calls":       {slices.Concat(times(20, 0), times(8, 1)), 20},
		"always":                 {times(9, 1), 0},
		"half of all calls":      {slices.Repeat([]int{0, 1}, 30), 60},
		"good, then bad to end":  {slices.Concat(times(20, 1), times(20, 0)), 40},
		"a trial before it":      {slices.Concat(times(1, 1), times(5, 0), times(60, 1)), 6},
		"shorter than eight":     {times(5, 1), 5},
		"one in ten is a trial":  {slices.Concat(times(9, 1), times(1, 2), times(9, 1), times(1, 2)), 0},
		"two in ten are a trial": {slices.Concat(times(8, 1), times(2, 2), times(8, 1), times(2, 2)), 20},
	} {
		if s := scripted(t, c.calls...); s.CallsToWithin5 != c.want {
			t.Errorf("%s: %g calls, want %g", name, s.CallsToWithin5, c.want)
		}
	}
	if s := scripted(t, slices.Concat(times(50, 1), times(50, 0), times(60, 2), times(100, 1))...); s.WorstWindow100 != (40*10+60*20)/1000.0 {
		t.Errorf("worst window of 100: %g", s.WorstWindow100)
	}
}

func TestCurveEndsAtTheRegret(t *testing.T) {
	c := comparison(t, 80, 0.05)
	p, err := c.Play(t.Context(), scenarios(t, traces(t, networkFile), false)[0], contender(t, agents.NameUCB), 2)
	if err != nil {
		t.Fatal(err)
	}
	all, _ := p.Scores()
	curve := p.Curve()
	if len(curve) != 80 || math.Abs(curve[79]-all.Regret) > 1e-9 || math.Abs(curve[63]-all.Regret64) > 1e-9 || !slices.IsSorted(curve) {
		t.Errorf("curve of %d calls ends at %g, regret %g", len(curve), curve[len(curve)-1], all.Regret)
	}
}

// Noise and order of calls do not depend on who plays, and the same seed gives the same scores.
func TestSameSeedSameScores(t *testing.T) {
	for _, daemon := range []bool{false, true} {
		c := comparison(t, 64, 0.05)
		c.Daemon = daemon
		s := scenarios(t, traces(t, quietFile, networkFile), false)[2]
		one, each := score(t, c, s, agents.NameUCB, 5)
		score(t, c, s, agents.NameCoordinateDescent, 5) // leaves no trace
		again, eachAgain := score(t, c, s, agents.NameUCB, 5)
		if one != again || !reflect.DeepEqual(each, eachAgain) {
			t.Errorf("daemon %v: same seed, other scores", daemon)
		}
		if other, _ := score(t, c, s, agents.NameUCB, 6); other == one {
			t.Errorf("daemon %v: the seed is not used", daemon)
		}
		if one.CostOverDefault >= 1 {
			t.Errorf("daemon %v: nothing was learned: %+v", daemon, one)
		}
	}
}

// A machine and actions that nobody saw before go the same way.
func TestComparesUnknownMachines(t *testing.T) {
	table, err := ReadTable(strings.NewReader(tiny))
	if err != nil {
		t.Fatal(err)
	}
	s := scenarios(t, []Trace{{"tiny", table}}, false)[0]
	all, each := score(t, comparison(t, 200, 0.02), s, agents.NameUCB, 1)
	if len(each) != 2 || all.Buckets != 2 || all.FinalOverOracle > 1.3 || each[0].Collective != "Broadcast" {
		t.Errorf("%+v", all)
	}
}

func TestPlayStopsAndRejects(t *testing.T) {
	s := scenarios(t, traces(t, quietFile), false)[0]
	c := comparison(t, 64, 0.05)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Play(ctx, s, contender(t, agents.NameUCB), 1); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := c.Play(t.Context(), s, Contender{Name: "nobody"}, 1); !errors.Is(err, ErrBadComparison) {
		t.Errorf("no learner: %v", err)
	}
	c.Calls = 0
	if _, err := c.Play(t.Context(), s, contender(t, LearnerOracle), 1); !errors.Is(err, ErrBadComparison) {
		t.Errorf("no calls: %v", err)
	}
}

func TestNoiseOf(t *testing.T) {
	if n := NoiseOf(0); n != (Noise{}) {
		t.Errorf("noise of 0: %+v", n)
	}
	if n, d := NoiseOf(0.05), DefaultNoise(); n.Sigma != d.Sigma || n.TailProb != d.TailProb || n.LostProb != d.LostProb {
		t.Errorf("noise of 5%%: %+v", n)
	}
	if n := NoiseOf(0.9); n.TailProb != maxTailProb || n.Sigma != 0.9 {
		t.Errorf("noise of 90%%: %+v", n)
	}
}
