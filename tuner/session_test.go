package tuner

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

// withPolicy lists the learners and the policy, which has no weights of its own here: what is tested holds for any.
func withPolicy() []string { return append(agents.Names(), agents.NameLSTM) }

func learnerOf(t interface {
	Helper()
	Fatal(...any)
}, name string) agents.NewLearner {
	t.Helper()
	l, err := agents.New(name)
	if name == agents.NameLSTM {
		l, err = agents.NewLSTM(agents.RandomPolicyWeights(rand.New(rand.NewPCG(4, 4))), agents.DefaultPolicyOptions())
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// sessionSet is the set of a machine without multicast: 1 + 2 algorithms x 3 protocols x 7 channel numbers.
func sessionSet() []actions.Action {
	marks := MarkSet(0)
	for _, algo := range []actions.Algorithm{actions.Tree, actions.Ring} {
		marks |= 7 << (3 * algo)
	}
	return ActionSet(state.Bucket{}, marks, 32)
}

func sessionOf(log2 uint8) SessionBucket {
	return SessionBucket{Bucket: state.Bucket{Collective: actions.AllReduce, Log2Bytes: log2}, Set: sessionSet()}
}

func newSession(t testing.TB, learner string, buckets ...SessionBucket) *Session {
	t.Helper()
	s, err := NewSession(SessionConfig{NewLearner: learnerOf(t, learner), Buckets: buckets, Seed: 1,
		Topology: state.Topology{Shape: state.Shape{Ranks: 8, Nodes: 2, Transport: "socket"}, NICs: 1}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// played asks and tells n rounds over all buckets of a world of 5% noise and gives the costs of the last round.
func played(s *Session, rng *rand.Rand, n int, costNs func(bucket int, a actions.Action) float64) (last []float64, said []agents.Diagnosis) {
	last = make([]float64, len(s.buckets))
	for range n {
		for i := range s.buckets {
			a := s.Ask(i)
			last[i] = costNs(i, s.Action(i, a))
			ns := last[i] * math.Exp(0.05*rng.NormFloat64())
			said = append(said, s.Tell(i, a, state.Ns(0.8*ns), state.Ns(ns)))
		}
	}
	return last, said
}

// twoFaces costs 100 us but for Ring/LL (half of it in the first condition) and Tree/LL128 (half of it in the second).
func twoFaces(second bool) func(int, actions.Action) float64 {
	return func(_ int, a actions.Action) float64 {
		ring := a.Path == actions.PathCollective && a.Algorithm == actions.Ring && a.Protocol == actions.LL
		tree := a.Path == actions.PathCollective && a.Algorithm == actions.Tree && a.Protocol == actions.LL128
		switch {
		case ring && second:
			return 160e3
		case ring || tree && second:
			return 50e3
		}
		return 100e3
	}
}

func TestSessionFindsAndFindsAgain(t *testing.T) {
	for _, name := range agents.Names() {
		if name == agents.NameDefault {
			continue
		}
		rng := rand.New(rand.NewPCG(7, 7))
		s := newSession(t, name, sessionOf(10), sessionOf(14))
		first := 0.0
		for range 5 { // a trial in the last round says nothing about the choice
			last, _ := played(s, rng, 30, twoFaces(false))
			first = slices.Min(last)
		}
		_, said := played(s, rng, 300, twoFaces(true))
		if !slices.ContainsFunc(said, func(d agents.Diagnosis) bool { return d != agents.DiagnosisNone }) {
			t.Errorf("%s: costs tripled and nobody said anything", name)
		}
		for i := range s.buckets {
			now := twoFaces(true)(i, s.Base(i))
			if first != 50e3 || now != 50e3 {
				t.Errorf("%s bucket %d: %.0f ns, after the change %.0f ns (%s); the best is 50000", name, i, first, now, s.Base(i))
			}
		}
	}
}

// A default that gets cheaper is noticed although nothing else runs differently: the guard's rounds are whole also where
// trials go one by one.
func TestSessionNoticesACheaperDefault(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	s := newSession(t, agents.NameCoordinateDescent, sessionOf(10))
	played(s, rng, 200, twoFaces(false))
	if s.Base(0) == actions.Default {
		t.Fatal("stays on the default, which takes twice as long")
	}
	// The guard's first round came after some 96 calls, its second comes 192 after that.
	played(s, rng, 220, func(i int, a actions.Action) float64 {
		if a == actions.Default {
			return 20e3
		}
		return twoFaces(false)(i, a)
	})
	if s.Base(0) != actions.Default {
		t.Errorf("stays on %s although the default takes less than half as long now", s.Base(0))
	}
}

func TestSessionPlansAsADaemon(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	s := newSession(t, agents.NameUCB, sessionOf(10))
	var queue []actions.Action
	for range 400 {
		base, trials, changed := s.Plan(0)
		if changed {
			queue = slices.Clone(trials)
		}
		if len(trials) > MaxTrials {
			t.Fatalf("%d trials in one plan", len(trials))
		}
		a := base
		if len(queue) > 0 {
			a, queue = queue[0], queue[1:]
		}
		ns := twoFaces(false)(0, a) * math.Exp(0.05*rng.NormFloat64())
		s.Tell(0, slices.Index(sessionSet(), a), 0, state.Ns(ns))
	}
	if base, _, _ := s.Plan(0); twoFaces(false)(0, base) != 50e3 {
		t.Errorf("settled on %s", base)
	}
}

// Whatever is asked and told in whatever order, every answer is an action of the bucket.
func TestSessionTakesAnything(t *testing.T) {
	design, err := agents.NewDesign(agents.DefaultParams())
	if err != nil {
		t.Fatal(err)
	}
	full := sessionSet()
	rapid.Check(t, func(t *rapid.T) {
		newLearner := learnerOf(t, rapid.SampledFrom(withPolicy()).Draw(t, "learner"))
		cfg := SessionConfig{NewLearner: newLearner, Design: design, Seed: rapid.Uint64().Draw(t, "seed"),
			Batch: rapid.IntRange(0, MaxTrials).Draw(t, "batch")}
		for range rapid.IntRange(1, 3).Draw(t, "buckets") {
			set := append([]actions.Action{actions.Default, {Path: actions.PathGIN, Backend: actions.BackendProxy}}, full[1:]...)
			cfg.Buckets = append(cfg.Buckets, SessionBucket{Set: set[:rapid.IntRange(1, len(set)).Draw(t, "actions")],
				Bytes:  rapid.Uint64().Draw(t, "bytes"),
				Bucket: state.Bucket{Collective: actions.AllReduce, Log2Bytes: rapid.Uint8Range(0, state.NumBuckets-1).Draw(t, "log2")}})
		}
		s, err := NewSession(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ns := rapid.OneOf(rapid.Int64Range(1, 1e9), rapid.Int64())
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			i := rapid.IntRange(-1, len(cfg.Buckets)).Draw(t, "bucket")
			if rapid.Bool().Draw(t, "tell") {
				s.Tell(i, rapid.IntRange(-1, len(full)+1).Draw(t, "action"), state.Ns(ns.Draw(t, "counter")), state.Ns(ns.Draw(t, "signal")))
				continue
			}
			i = max(0, min(i, len(cfg.Buckets)-1))
			if rapid.IntRange(0, 9).Draw(t, "plan") == 0 {
				s.Plan(i)
				continue
			}
			if a := s.Ask(i); a < 0 || a >= len(cfg.Buckets[i].Set) {
				t.Fatalf("action %d of %d", a, len(cfg.Buckets[i].Set))
			}
			if why := s.Why(i); why == "" || strings.Contains(why, "NaN") {
				t.Fatalf("why %q", why)
			}
		}
	})
}

func TestSessionsOfOneSeedAgree(t *testing.T) {
	for _, name := range withPolicy() {
		run := func() (asked []float64) {
			s := newSession(t, name, sessionOf(10), sessionOf(10))
			rng := rand.New(rand.NewPCG(9, 9))
			for range 100 {
				last, _ := played(s, rng, 1, twoFaces(false))
				asked = append(asked, last...)
			}
			return asked
		}
		if !slices.Equal(run(), run()) {
			t.Errorf("%s: the same calls got other answers", name)
		}
	}
}

func TestSessionAsksWithoutAllocating(t *testing.T) {
	for _, name := range withPolicy() {
		s := newSession(t, name, sessionOf(10))
		played(s, rand.New(rand.NewPCG(1, 1)), 200, twoFaces(false))
		base := slices.Index(sessionSet(), s.Base(0))
		if n := testing.AllocsPerRun(200, func() { s.Ask(0); s.Tell(0, base, 40e3, 50e3) }); n != 0 {
			t.Errorf("%s: %.1f allocations for asking and telling", name, n)
		}
	}
}

func TestNewSessionRejects(t *testing.T) {
	good := sessionOf(10)
	for name, c := range map[string]struct {
		cfg  SessionConfig
		want string
	}{
		"no learner": {SessionConfig{Buckets: []SessionBucket{good}}, "no learner"},
		"no buckets": {SessionConfig{NewLearner: learnerOf(t, agents.NameUCB)}, "no buckets"},
		"no default": {SessionConfig{NewLearner: learnerOf(t, agents.NameUCB), Buckets: []SessionBucket{good, {Bucket: good.Bucket, Set: good.Set[1:]}}}, "bucket 1 of the list: action 0"},
		"no actions": {SessionConfig{NewLearner: learnerOf(t, agents.NameUCB), Buckets: []SessionBucket{{Bucket: good.Bucket}}}, "action 0"},
		"twice":      {SessionConfig{NewLearner: learnerOf(t, agents.NameUCB), Buckets: []SessionBucket{{Bucket: good.Bucket, Set: append(sessionSet(), good.Set[3])}}}, "actions 3 and 43"},
		"nonsense":   {SessionConfig{NewLearner: learnerOf(t, agents.NameUCB), Buckets: []SessionBucket{{Bucket: good.Bucket, Set: append(sessionSet(), actions.Action{Path: 9})}}}, "action 43"},
		"batch":      {SessionConfig{NewLearner: learnerOf(t, agents.NameUCB), Buckets: []SessionBucket{good}, Batch: MaxTrials + 1}, "batches of 13"},
		"collective": {SessionConfig{NewLearner: learnerOf(t, agents.NameUCB), Buckets: []SessionBucket{{Bucket: state.Bucket{Collective: actions.NumCollectives}, Set: good.Set}}}, "does not exist"},
	} {
		if _, err := NewSession(c.cfg); !errors.Is(err, ErrBadSession) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestSessionSaysWhy(t *testing.T) {
	s := newSession(t, agents.NameCoordinateDescent, sessionOf(10))
	s.Ask(0)
	if why := s.Why(0); why != "trial: NCCL's default, to compare with; 0 calls of it so far in this condition" {
		t.Errorf("first call: %q", why)
	}
	played(s, rand.New(rand.NewPCG(1, 1)), 300, twoFaces(false))
	found := false
	for range 20 {
		s.Ask(0)
		found = found || strings.Contains(s.Why(0), "x as fast as NCCL's default")
	}
	if !found {
		t.Errorf("settled: %q", s.Why(0))
	}
}

// A steady session takes calls that differ for noise; what it learned is what the store would get.
func TestSteadySession(t *testing.T) {
	ring := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL, Channels: 8}
	bucket := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}
	for _, steady := range []bool{false, true} {
		newLearner, err := agents.New(agents.NameUCB)
		if err != nil {
			t.Fatal(err)
		}
		shape := state.Shape{Ranks: 4, Nodes: 1}
		s, err := NewSession(SessionConfig{NewLearner: newLearner, Topology: state.Topology{Shape: shape}, Steady: steady,
			Buckets: []SessionBucket{{Bucket: bucket, Set: []actions.Action{actions.Default, ring}}, {Bucket: bucket, Set: []actions.Action{actions.Default}}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := s.Learned(0); ok {
			t.Error("something is learned of nothing")
		}
		for range 40 {
			s.Tell(0, 0, 0, 10_000)
			s.Tell(0, 1, 0, 8000)
			s.Tell(1, 0, 0, 8000)
		}
		for range 40 {
			s.Tell(0, 0, 0, 12_000)
		}
		s.Ask(0)
		l, ok := s.Learned(0)
		if steady && (!ok || l.Action != ring || l.Calls != 120 || l.Evidence[actions.Default].N != 80 || l.Evidence[ring].N != 40 || l.Key.Shape != shape ||
			l.Key.Bucket != bucket || l.CostNs < 7999 || l.CostNs > 8001) {
			t.Errorf("%+v, %v", l, ok)
		}
		if !steady && l.Evidence[actions.Default].N == 80 {
			t.Error("a step of a fifth was no change of conditions")
		}
		if _, ok := s.Learned(1); ok {
			t.Error("a choice is learned where there is none")
		}
	}
}
