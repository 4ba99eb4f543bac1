package tuner

import (
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

// silentCase is a bucket in which two shot is the best of our kernels, but where bulk would cost less, if it were ever heard of.
type silentCase struct {
	*caller
	silent func(a actions.Action, made uint16) bool
	made   int // calls that nobody hears of

	slow     func(a actions.Action, calls int) bool // nil: none is
	timed    func(seq int) bool                     // beside trials; nil: each is
	allCalls int
	inBulk   int      // of which bulk ran so many
	scale    state.Ns // of costs; 0: 1
	now      state.Ns
	callNs   state.Ns // from one to the next; 0: 1 us
}

func newSilentCase(t *testing.T, learner string, silent func(a actions.Action, made uint16) bool) *silentCase {
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 20}
	p := newCaller(t, learner, Config{Explore: true, SampleEvery: 1}, CommJoined{Shape: state.Shape{Ranks: 2, Nodes: 1}}, b, marksOfKernels|0b111_000)
	p.ranks = 2
	return &silentCase{caller: p, silent: silent}
}

func (s *silentCase) cost(a actions.Action) state.Ns {
	ns := state.Ns(60_000)
	switch {
	case a == actions.Default:
		ns = 40_000
	case a.Path == actions.PathLSA && a.Kernel == actions.TwoShot:
		ns = 20_000 + 200*state.Ns(64-a.Channels)
	case isBulk(a):
		ns = 10_000
	}
	return ns * max(1, s.scale)
}

func isBulk(a actions.Action) bool { return a.Path == actions.PathLSA && a.Kernel == actions.Bulk }

func (s *silentCase) play(calls int) {
	for range calls {
		a := s.next()
		s.now += max(s.callNs, 1000)
		s.allCalls++
		if isBulk(a) {
			s.inBulk++
		}
		switch trial := s.calls - s.entry.Skip; {
		case s.timed != nil && !s.timed(s.allCalls) && (trial < 1 || trial > len(s.entry.Trials)):
		case s.slow != nil && s.slow(a, s.allCalls):
			s.tellSlow(s.now, uint64(s.allCalls), a, s.cost(a))
		case s.silent != nil && s.silent(a, s.caller.made):
			s.made++
		default:
			s.tell(s.now, uint64(s.allCalls), a, a, s.cost(a))
		}
		s.tick(s.now)
	}
}

var silentLearners = []string{"lstm", "ucb", "thompson", "successive-halving", "coordinate-descent"}

// Actions whose calls nobody ever hears of are tried ever more rarely, and the best of all others is found.
func TestTrialsThatNobodyHearsOfEnd(t *testing.T) {
	for _, learner := range silentLearners {
		t.Run(learner, func(t *testing.T) {
			s := newSilentCase(t, learner, func(a actions.Action, _ uint16) bool { return isBulk(a) })
			s.play(20_000)
			v := s.core.Buckets()[0]
			if v.Choice.Kernel != actions.TwoShot || v.Choice.Path != actions.PathLSA || s.cost(v.Choice) > 27_000 {
				t.Errorf("%s is in force", v.Choice)
			}
			first := s.made
			if first == 0 || first > silentBatches*MaxTrials+2*11 { // two actions, pauses of 16, 32 and so on up to 16,384
				t.Errorf("%d calls that nobody heard of", first)
			}
			if learner != "coordinate-descent" {
				return // all others rest by themselves
			}
			if names(v.Silent) != "lsa/bulk/32 lsa/bulk/64" {
				t.Errorf("%s have left", names(v.Silent))
			}
			if s.play(20_000); s.made > first+2*2 {
				t.Errorf("%d more calls that nobody heard of", s.made-first)
			}
		})
	}
}

// A host that is too slow for some time is no reason to do without the best action for good. All others give it up before it leaves.
func TestWhatWasSilentComesBack(t *testing.T) {
	s := newSilentCase(t, "coordinate-descent", func(a actions.Action, made uint16) bool { return isBulk(a) && made < 1000 })
	s.play(1000)
	if len(s.core.Buckets()[0].Silent) == 0 {
		t.Error("nothing has left")
	}
	s.play(5000)
	if v := s.core.Buckets()[0]; !isBulk(v.Choice) || len(v.Silent) > 0 {
		t.Errorf("%s is in force, %s have left", v.Choice, names(v.Silent))
	}
}

// Choices that come and go, since their host is too slow by turns, are granted no allowance each time: what they lose stays within what
// exploration may, but for a batch's or two's.
func TestComingAndGoingEarnsNoAllowance(t *testing.T) {
	for _, c := range []struct {
		share float64
		turn  int
		other state.Ns
	}{{0.01, 50, 50_000}, {0.01, 50, 54_000}, {0.003, 100, 50_000}, {0.003, 100, 53_000}} {
		s := newSilentCase(t, "coordinate-descent", nil)
		s.core.SetGuard(agents.DefaultGuardConfig().Budgeted(c.share))
		const first = 40_000 // NCCL's default is the best
		lost, most, remade := 0.0, 0.0, 0
		bucket := s.core.comms[1].order[0]
		for i := range 8000 {
			a, ns := s.next(), state.Ns(first)
			if a != actions.Default {
				ns = c.other
			}
			if !isBulk(a) || i/c.turn%2 == 0 {
				lost += float64(ns-first) / first
				s.tell(state.Ns(i)*50_000, uint64(i+1), a, a, ns+eventsNs+earlyNs(s.b, a))
			}
			most = max(most, lost-c.share*float64(400+i))
			if s.tick(state.Ns(i) * 50_000); s.core.comms[1].order[0] != bucket {
				bucket = s.core.comms[1].order[0]
				remade++
			}
		}
		if most > 12 || remade < 2 {
			t.Errorf("budget of %g, turns of %d, %d ns: %.1f calls of the default beyond it are lost; choices came or went %d times", c.share, c.turn, c.other, most, remade)
		}
	}
}

// Only tries in a row that were all heard of bring an action back: of one that is mostly too slow the fast calls alone are heard of.
func TestOneWordIsNotEnough(t *testing.T) {
	a := actions.Action{Path: actions.PathLSA, Kernel: actions.Bulk, Channels: 64}
	allowed := []actions.Action{actions.Default, a}
	for _, heard := range []int{1, 2, 3} { // of each three tries
		s := silence{quiet: map[actions.Action]quiet{a: {batches: silentBatches, pause: silentPause, left: true}}}
		tries := 0
		for calls := range uint64(20_000) {
			if _, again := s.again(allowed, calls, func(actions.Action) bool { return false }); again {
				if tries%3 < heard {
					s.hears(a)
				}
				tries++
			}
		}
		if tries > 40 {
			t.Errorf("%d tries", tries)
		}
		if back := s.turns(); back != (heard == 3) || s.has(a) != (heard < 3) {
			t.Errorf("%d of three heard: back %v, left %v, %d tries", heard, back, s.has(a), tries)
		}
	}
}

// A name that has turned out to stand for another kernel is not tried again, though nothing was heard under it.
func TestMisnamedIsNotTriedAgain(t *testing.T) {
	b := state.Bucket{Collective: actions.AllReduceRegistered, Log2Bytes: 20}
	ring := func(p actions.Protocol) actions.Action {
		return actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: p}
	}
	for _, learner := range silentLearners[1:] { // lstm does not try it
		p := newCaller(t, learner, Config{Explore: true, SampleEvery: 1}, CommJoined{Shape: state.Shape{Ranks: 4, Nodes: 1}}, b, marksOf(b.Collective))
		p.ranks = 4
		calls := 0
		for i := range 5000 {
			a := p.next()
			ran, cost := a, state.Ns(60_000)
			switch a {
			case ring(actions.LL):
				ran = ring(actions.LL128)
				calls++
			case actions.Default:
				ran, cost = ring(actions.Simple), 50_000
			}
			p.tell(state.Ns(i)*1000, uint64(i+1), a, ran, cost)
			p.tick(state.Ns(i) * 1000)
		}
		if v := p.core.Buckets()[0]; calls < misnamedCalls || calls > MaxTrials || len(v.Silent) > 0 {
			t.Errorf("%s: %d calls of it; %s have left", learner, calls, names(v.Silent))
		}
	}
}
