package agents

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"dynamiccl/actions"
	"dynamiccl/state"
)

func TestRegistry(t *testing.T) {
	for _, name := range Names() {
		makeLearner, err := New(name)
		if err != nil {
			t.Fatal(err)
		}
		if l := makeLearner(Task{Set: fullSet(), Bucket: bucketOf(10), Rand: rand.New(rand.NewPCG(1, 1))}); l.Name() != name {
			t.Errorf("learner %q calls itself %q", name, l.Name())
		}
	}
	_, err := New("gradient-free")
	if !errors.Is(err, ErrUnknownLearner) {
		t.Fatalf("%v", err)
	}
	for _, name := range []string{NameDefault, NameCoordinateDescent, NameUCB} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%q does not name %q", err, name)
		}
	}
}

// untrained is the policy of tests: laws hold whatever the weights are, and no test here depends on a trained file.
var untrained = sync.OnceValue(func() *PolicyWeights { return RandomPolicyWeights(rand.New(rand.NewPCG(4, 4))) })

// withPolicy lists the learners of this package and the policy.
func withPolicy() []string { return append(Names(), NameLSTM) }

// adaptive lists those that learn anything.
func adaptive() []string {
	return slices.DeleteFunc(withPolicy(), func(name string) bool { return name == NameDefault })
}

func newNamed(t interface{ Fatal(...any) }, name string) NewLearner {
	l, err := New(name)
	if name == NameLSTM {
		l, err = NewLSTM(untrained(), DefaultPolicyOptions())
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func makeLearner(t interface{ Fatal(...any) }, name string, set []actions.Action, bucket state.Bucket, prior map[actions.Action]float64, seed uint64) Learner {
	return newNamed(t, name)(Task{Set: set, Bucket: bucket, Prior: prior, Rand: rand.New(rand.NewPCG(seed, 1))})
}

func makeGuard(t interface{ Fatal(...any) }, name string, set []actions.Action, bucket state.Bucket, prior map[actions.Action]float64, seed uint64) *Guard {
	return NewGuard(makeLearner(t, name, set, bucket, prior, seed), set, bucket, prior, DefaultGuardConfig())
}

// drawSet is any set that NCCL might allow: default first, no repetition.
func drawSet(t *rapid.T) []actions.Action {
	set := []actions.Action{actions.Default}
	one := rapid.Custom(func(t *rapid.T) actions.Action {
		switch rapid.IntRange(0, 15).Draw(t, "path") {
		case 0:
			return actions.Action{Path: actions.PathSymmetric}
		case 1, 2, 3:
			return actions.Action{Path: actions.PathLSA, Kernel: actions.Kernel(rapid.IntRange(0, actions.NumKernels-1).Draw(t, "kernel")),
				Channels: rapid.SampledFrom([]uint8{0, 1, 4, 16, 64}).Draw(t, "CTAs")}
		}
		return actions.Action{Path: actions.PathCollective,
			Algorithm: actions.Algorithm(rapid.IntRange(0, actions.NumAlgorithms-1).Draw(t, "algorithm")),
			Protocol:  actions.Protocol(rapid.IntRange(0, actions.NumProtocols-1).Draw(t, "protocol")),
			Channels:  rapid.SampledFrom([]uint8{0, 1, 2, 3, 8, 32, 64, 255}).Draw(t, "channels")}
	})
	for _, a := range rapid.SliceOfN(one, 0, 30).Draw(t, "set") {
		if !slices.Contains(set, a) {
			set = append(set, a)
		}
	}
	return set
}

// Whatever is observed, in whatever order, learners and guards propose what is in the set, no more than asked for, and
// the same again for the same calls; a guard's base is the default unless another action is measured better, or was before
// conditions changed and cannot be judged yet.
func TestLearnerLaws(t *testing.T) {
	rapidCheck(t, func(t *rapid.T) {
		set := drawSet(t)
		name := rapid.SampledFrom(withPolicy()).Draw(t, "learner")
		bucket := bucketOf(rapid.Uint8Range(0, 47).Draw(t, "size"))
		seed := rapid.Uint64().Draw(t, "seed")
		var prior map[actions.Action]float64
		if rapid.Bool().Draw(t, "prior") {
			prior = map[actions.Action]float64{actions.Default: 1e5, set[len(set)-1]: 5e4}
		}
		bare, guard := makeLearner(t, name, set, bucket, prior, seed), makeGuard(t, name, set, bucket, prior, seed)
		twin := makeGuard(t, name, set, bucket, prior, seed)
		cost := rapid.SampledFrom([]state.Ns{math.MinInt64, -1, 0, 1, 900, 1000, 1100, 5000, 1e6, 1e12, math.MaxInt64})
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				d := Diagnosis(rapid.IntRange(0, 9).Draw(t, "diagnosis"))
				bare.Shift(d)
				guard.Shift(d)
				twin.Shift(d)
			case 1, 2, 3:
				n := rapid.IntRange(-1, 12).Draw(t, "max")
				base, trials := bare.Propose(n)
				lawful(t, set, base, trials, n)
				base, trials = guard.Propose(n)
				lawful(t, set, base, trials, n)
				b2, t2 := twin.Propose(n)
				if base != b2 || !slices.Equal(trials, t2) {
					t.Fatalf("the same calls gave %s %v and %s %v", base, trials, b2, t2)
				}
				if guard.Urgent() {
					t.Fatal("still urgent after Propose")
				}
				if base != actions.Default && !guard.kept {
					b, d := guard.Estimate(base), guard.Estimate(actions.Default)
					if b.N < guardMinChoice || d.N < guardMinDefault || !(b.LogNs < d.LogNs) {
						t.Fatalf("%s is in force with %+v, the default with %+v", base, b, d)
					}
				}
			default:
				a := rapid.SampledFrom(append(set, actions.Action{Path: 9}, actions.Action{Path: 1, Algorithm: 200})).Draw(t, "action")
				o := state.Observation{Action: a, SignalNs: cost.Draw(t, "cost")}
				for range rapid.IntRange(1, 6).Draw(t, "times") {
					bare.Observe(o)
					guard.Observe(o)
					twin.Observe(o)
				}
			}
			if b := guard.Base(); !slices.Contains(set, b) {
				t.Fatalf("base %s is not in the set", b)
			}
		}
	})
}

func lawful(t *rapid.T, set []actions.Action, base actions.Action, trials []actions.Action, most int) {
	if !slices.Contains(set, base) {
		t.Fatalf("base %s is not in the set", base)
	}
	if len(trials) > max(0, most) {
		t.Fatalf("%d trials, at most %d were asked for", len(trials), most)
	}
	for _, a := range trials {
		if !slices.Contains(set, a) {
			t.Fatalf("trial %s is not in the set", a)
		}
	}
}

// Garbage must leave no trace: with and without it, the proposals are the same.
func TestGarbageLeavesNoTrace(t *testing.T) {
	set := fullSet()
	for _, name := range withPolicy() {
		clean, dirty := makeGuard(t, name, set, bucketOf(14), nil, 1), makeGuard(t, name, set, bucketOf(14), nil, 1)
		rng := rand.New(rand.NewPCG(2, 2))
		for range 10 {
			_, trials := clean.Propose(12)
			trials = slices.Clone(trials)
			if base, same := dirty.Propose(12); base != clean.Base() || !slices.Equal(trials, same) {
				t.Fatalf("%s: garbage changed the trials from %v to %v", name, trials, same)
			}
			for _, a := range append(trials, actions.Default) {
				o := seen(a, 1e5*(0.5+rng.Float64()))
				clean.Observe(o)
				dirty.Observe(seen(a, 0))
				dirty.Observe(o)
				dirty.Observe(seen(a, -1e9))
				dirty.Observe(seen(actions.Action{Path: actions.PathCollective, Algorithm: actions.PAT, Channels: 3}, 1))
			}
		}
	}
}

// simWorld answers calls of a bucket: cost by action, multiplied by noise.
type simWorld struct {
	cost  func(actions.Action) float64
	sigma float64
	rng   *rand.Rand
}

func (w simWorld) call(a actions.Action) state.Observation {
	return seen(a, w.cost(a)*math.Exp(w.sigma*w.rng.NormFloat64()))
}

// step makes one call as a daemon has it made, of a trial where there is one, and gives what ran.
func (w simWorld) step(g *Guard) actions.Action {
	a, trials := g.Propose(1)
	if len(trials) > 0 {
		a = trials[0]
	}
	g.Observe(w.call(a))
	if g.Jumped() {
		g.Shift(DiagnosisUnknown)
	}
	return a
}

// drive runs batches: trials, then some calls of the base. It gives the trials run.
func drive(l Learner, w simWorld, batches int) (trials int) {
	for range batches {
		base, batch := l.Propose(12)
		for _, a := range slices.Clone(batch) {
			l.Observe(w.call(a))
			if a != actions.Default {
				trials++
			}
		}
		for range 4 {
			l.Observe(w.call(base))
		}
	}
	return trials
}

// additive is a world in which algorithm, protocol and channels each cost a factor; Tree/LL/8 is the best, 1.6 times
// better than the default.
func additive(a actions.Action) float64 {
	if a == actions.Default {
		return 1e5
	}
	f := []float64{1, 1.4}[a.Algorithm] * []float64{1, 1.25, 1.6}[a.Protocol]
	return 1e5 / 1.6 * f * (1 + 0.06*math.Pow(math.Log2(float64(a.Channels))-3, 2))
}

func TestLearnersFindTheBest(t *testing.T) {
	for _, name := range adaptive() {
		for seed := range uint64(10) {
			g := makeGuard(t, name, fullSet(), bucketOf(12), nil, seed)
			w := simWorld{additive, 0.05, rand.New(rand.NewPCG(seed, 7))}
			trials := drive(g, w, 5)
			if c := additive(g.Base()) / (1e5 / 1.6); c > 1.1 {
				t.Errorf("%s, seed %d: base %s costs %.2f of the best after %d trials", name, seed, g.Base(), c, trials)
			}
			tried := len(g.Estimates(nil))
			if tried >= 30 {
				t.Errorf("%s, seed %d: %d of 43 actions were tried", name, seed, tried)
			}
			drive(g, w, 60)
			_, more := g.Propose(12)
			if more = slices.DeleteFunc(slices.Clone(more), func(a actions.Action) bool { return a == actions.Default }); len(more) != 0 {
				t.Errorf("%s, seed %d: not settled after 65 batches: %v", name, seed, more)
			}
			ratio, low, high := g.SpeedUp()
			if !(low < ratio && ratio < high) || math.Abs(ratio-1e5/additive(g.Base())) > 0.1 {
				t.Errorf("%s, seed %d: speed-up %.2f (%.2f to %.2f), truly %.2f", name, seed, ratio, low, high, 1e5/additive(g.Base()))
			}
		}
	}
}

func TestWinnersOfEarlierConditionsComeFirst(t *testing.T) {
	for _, name := range adaptive() {
		g := makeGuard(t, name, fullSet(), bucketOf(12), nil, 3)
		w := simWorld{additive, 0.03, rand.New(rand.NewPCG(3, 7))}
		drive(g, w, 10)
		winner := g.Base()
		w.cost = func(a actions.Action) float64 { // another condition: Tree is hopeless, Ring/Simple best
			if a.Algorithm == actions.Ring && a.Path == actions.PathCollective && a.Protocol == actions.Simple {
				return 6e5 * (1 + 0.05*float64(a.Channels)/32)
			}
			return 1e6
		}
		g.Shift(DiagnosisCongestion)
		if g.Base() != winner || !g.Urgent() {
			t.Errorf("%s: base %s, urgent %v: want %s to stay until it is judged, and that at once", name, g.Base(), g.Urgent(), winner)
		}
		drive(g, w, 16)
		if w.cost(g.Base()) > 7e5 {
			t.Errorf("%s: base %s in the second condition", name, g.Base())
		}
		w.cost = additive
		g.Shift(DiagnosisRecovered)
		_, trials := g.Propose(12)
		if n := slices.Index(trials, winner); n < 0 || n > 3 {
			t.Errorf("%s: the first condition's winner %s is not among the first trials %v", name, winner, trials)
		}
		drive(g, w, 2)
		if c := additive(g.Base()) / (1e5 / 1.6); c > 1.1 {
			t.Errorf("%s: base %s costs %.2f of the best two batches after the condition came back", name, g.Base(), c)
		}
	}
}

// A store's costs make the first batch: a warm start needs no exploration.
func TestPriorIsValidatedFirst(t *testing.T) {
	set := fullSet()
	best := set[find(t, set, "Tree/LL/8")]
	prior := map[actions.Action]float64{}
	for _, a := range set {
		prior[a] = additive(a)
	}
	for _, name := range adaptive() {
		g := makeGuard(t, name, set, bucketOf(12), prior, 1)
		if base, trials := g.Propose(12); base != actions.Default || !slices.Contains(trials, best) {
			t.Errorf("%s: starts with %s, trials %v", name, base, trials)
		}
		drive(g, simWorld{additive, 0.03, rand.New(rand.NewPCG(1, 7))}, 2)
		if g.Base() != best {
			t.Errorf("%s: base %s after two batches of a warm start", name, g.Base())
		}
	}
}

// Trials that are never seen must not stop a learner.
func TestLostTrials(t *testing.T) {
	for _, name := range adaptive() {
		g := makeGuard(t, name, fullSet(), bucketOf(12), nil, 1)
		w := simWorld{additive, 0.05, rand.New(rand.NewPCG(1, 7))}
		for range 20 {
			base, trials := g.Propose(12)
			for i, a := range slices.Clone(trials) {
				if i%2 == 0 {
					g.Observe(w.call(a))
				}
			}
			g.Observe(w.call(base))
		}
		if c := additive(g.Base()) / (1e5 / 1.6); c > 1.1 {
			t.Errorf("%s: base %s costs %.2f of the best", name, g.Base(), c)
		}
	}
}
