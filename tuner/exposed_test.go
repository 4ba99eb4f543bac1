package tuner

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

var treeSimple = actions.Action{Path: actions.PathCollective, Algorithm: actions.Tree, Protocol: actions.Simple, Channels: 8}

var defaultDesign = sync.OnceValues(func() (agents.Design, error) { return agents.NewDesign(agents.DefaultParams()) })

// still is a bucket whose learner leaves NCCL's default in force.
func still(t interface{ Fatal(...any) }, log2 uint8) *bucket {
	learner, err := agents.New(agents.NameDefault)
	if err != nil {
		t.Fatal(err)
	}
	design, err := defaultDesign() // takes milliseconds
	if err != nil {
		t.Fatal(err)
	}
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: log2}
	return newBucket(b, []actions.Action{actions.Default, treeSimple}, false, learner, design, agents.DefaultGuardConfig(), state.Topology{Shape: state.Shape{Ranks: 2, Nodes: 2}},
		agents.NewPeers(), nil, actions.Default, nil)
}

// line feeds an exposure call by call.
type line struct {
	x    exposure
	seq  uint64
	now  int64
	sums map[actions.Action][]float64
}

// call is one call, and what passes until the next one begins.
func (l *line) call(b *bucket, a actions.Action, ownNs, intervalNs int64) {
	c := timed{o: state.Observation{Seq: l.seq, Action: a, SignalNs: state.Ns(ownNs)}, bucket: b, kind: 1 + uint64(b.Log2Bytes), startNs: l.now,
		endNs: l.now + ownNs, trial: a != actions.Default}
	if before, ns, ok := l.x.next(c); ok {
		l.sums[before.o.Action] = append(l.sums[before.o.Action], float64(ns))
	}
	l.seq++
	l.now += intervalNs
}

func newLine() *line { return &line{now: 1e9, sums: map[actions.Action][]float64{}} }

func mean(xs []float64) (m float64) {
	for _, x := range xs {
		m += x / float64(len(xs))
	}
	return m
}

// Wherever in the step trials fall, the actions' charges differ by what they differ in at one place: the places' own
// intervals, which differ by much more, do not show. And the default is charged what its calls take.
func TestChargesDifferAsActionsDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		places := rapid.IntRange(2, 12).Draw(t, "places")
		computeNs := rapid.SliceOfN(rapid.Int64Range(300_000, 5_000_000), places, places).Draw(t, "compute")
		differNs := rapid.Int64Range(-80_000, 80_000).Draw(t, "difference")
		trials := rapid.SliceOfN(rapid.IntRange(0, places-2), 40, 40).Draw(t, "trials")
		odd, b := still(t, 10), still(t, 20)
		l, warm := newLine(), rhythmCalls/places+10
		for i := range warm + len(trials) {
			for p := range places - 1 {
				a, more := actions.Default, int64(0)
				if i >= warm && trials[i-warm] == p {
					a, more = treeSimple, differNs
				}
				l.call(b, a, 100_000, 100_000+computeNs[p]+more)
			}
			l.call(odd, actions.Default, 20_000, 20_000+computeNs[places-1])
		}
		if n := len(l.sums[treeSimple]); n != len(trials) {
			t.Fatalf("%d of %d trials charged", n, len(trials))
		}
		got := mean(l.sums[treeSimple])
		if math.Abs(got-100_000-float64(differNs)) > 2 {
			t.Fatalf("charged %.0f ns, want %d", got, 100_000+differNs)
		}
	})
}

// Where compute waits for the call the charge is the call's own time, noise and all.
func TestChargeIsTheCallWhereComputeWaits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		b, l := still(t, 20), newLine()
		for i := range 640 {
			a, ns := actions.Default, 90_000+rng.Int64N(20_000)
			if i >= 440 && i%2 == 0 {
				a, ns = treeSimple, 3*ns/2
			}
			l.call(b, a, ns, ns+2_000_000)
		}
		if len(l.sums[treeSimple]) < 90 || len(l.sums[actions.Default]) < 220 {
			t.Fatalf("%d trials and %d calls of the default were charged", len(l.sums[treeSimple]), len(l.sums[actions.Default]))
		}
		if got := mean(l.sums[treeSimple]) - mean(l.sums[actions.Default]); math.Abs(got-50_000) > 8_000 {
			t.Errorf("the slower one is charged %.0f ns more, want about 50000", got)
		}
	})
}

// What does not count: a pause of the host, a call whose successor was not sampled, one that makes up for a trial's delay.
// A program that changes for good is learned anew.
func TestIntervalsThatDoNotCount(t *testing.T) {
	b, l := still(t, 20), newLine()
	steady := func(n int, intervalNs int64) {
		for range n {
			l.call(b, actions.Default, 100_000, intervalNs)
		}
	}
	steady(400, 1_000_000)
	charged := func() int { return len(l.sums[actions.Default]) + len(l.sums[treeSimple]) }
	before := charged()
	l.call(b, treeSimple, 100_000, 500_000_000)
	steady(2, 1_000_000)
	if got := charged() - before; got != 2 { // those before and behind it; the last one waits for its successor
		t.Errorf("%d intervals counted beside a pause, want 2", got)
	}
	before = charged()
	l.seq += 5 // of an epoch that is not sampled
	steady(2, 1_000_000)
	if got := charged() - before; got != 1 {
		t.Errorf("%d intervals counted around a gap, want 1", got)
	}
	before = charged()
	l.call(b, treeSimple, 1_100_000, 1_100_000) // longer than the compute beside it: the next call comes late
	l.call(b, actions.Default, 100_000, 900_000)
	steady(1, 1_000_000)
	if got := charged() - before; got != 2 {
		t.Errorf("%d intervals counted around a late call, want 2: the one before it and its own", got)
	}
	before = charged()
	steady(placeMoved+placeFirst+11, 10_000_000)
	if got := charged() - before; got < 10 {
		t.Errorf("%d intervals counted since compute takes ten times as long", got)
	}
	for _, ns := range l.sums[actions.Default] {
		if math.Abs(ns-100_000) > 1 {
			t.Fatalf("the default is charged %.0f ns, want 100000", ns)
		}
	}
}

// A choice can take no more from compute than it lasts: noise below that is cut, and nothing is charged 0 or less.
func TestChargesStayAboveNothing(t *testing.T) {
	b, l := still(t, 20), newLine()
	rng := rand.New(rand.NewPCG(1, 1))
	for range 600 {
		l.call(b, actions.Default, 100_000, 1_100_000+rng.Int64N(1_800_000))
	}
	if len(l.sums[actions.Default]) < 100 {
		t.Fatalf("%d calls were charged", len(l.sums[actions.Default]))
	}
	for _, ns := range l.sums[actions.Default] {
		if ns < exposedLeast*100_000 {
			t.Fatalf("charged %.0f ns", ns)
		}
	}
}

// The period is the shortest one in which all calls come back; calls in between move it and lose nothing.
func TestRhythm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.IntRange(2, rhythmLongest).Draw(t, "period")
		kinds := rapid.SliceOfN(rapid.Uint64Range(2, 5), p, p).Draw(t, "kinds")
		kinds[0] = 1 // once a step, so that no shorter period is there
		var r rhythm
		seq, changes := uint64(rapid.IntRange(0, 1000).Draw(t, "first")), 0
		play := func(kind uint64) {
			if r.hear(seq, kind) {
				changes++
			}
			seq++
		}
		for range rapid.IntRange(0, 40).Draw(t, "before") {
			play(9)
		}
		for i := range rhythmFirst + 3*p {
			play(kinds[i%p])
		}
		if r.period != p || changes != 1 {
			t.Fatalf("period %d after %d changes, want %d", r.period, changes, p)
		}
		first := rapid.IntRange(0, p-1).Draw(t, "between")
		for i := range first {
			play(kinds[(rhythmFirst+3*p+i)%p])
		}
		at, _ := r.place(seq)
		play(9) // an odd call
		if r.period != 0 {
			t.Fatal("an odd call passed as one of the step's")
		}
		for i := range rhythmFirst + 3*p {
			if i%p == 0 && r.period > 0 {
				if again, _ := r.place(seq); again != at {
					t.Fatalf("place %d is %d after a call in between", at, again)
				}
			}
			play(kinds[(rhythmFirst+3*p+first+i)%p])
		}
		if r.period != p || changes != 1 {
			t.Fatalf("period %d after %d changes, want %d and the places kept", r.period, changes, p)
		}
	})
}

// Without order there is no step, and where all calls are alike each is one.
func TestRhythmOfOtherPrograms(t *testing.T) {
	var random, same rhythm
	x := uint64(1)
	for seq := range uint64(5000) {
		x = x*6364136223846793005 + 1442695040888963407
		random.hear(seq, 1+x>>62)
		same.hear(seq, 7)
	}
	if random.period != 0 || same.period != 1 {
		t.Errorf("period %d of random calls and %d of equal ones, want 0 and 1", random.period, same.period)
	}
	for _, name := range Rewards() {
		if r, err := ParseReward(name); err != nil || r.String() != name {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
	if _, err := ParseReward("wage"); err == nil {
		t.Error("an unknown reward was taken")
	}
}

// Equal calls with unequal compute between them: the step is as long as it takes for intervals to come back.
func TestRhythmOfEqualCalls(t *testing.T) {
	for _, p := range []int{2, 3, 7, 12, 40, 84, 85, 147, 200} {
		for seed := uint64(1); seed <= 5; seed++ {
			rng := rand.New(rand.NewPCG(seed, uint64(p)))
			var r rhythm
			for seq := range uint64(rhythmFirst + 2*rhythmCalls) {
				r.hear(seq, 7)
				ns := 1e6
				if seq%uint64(p) == 0 {
					ns = 1.8e6 // an optimizer's step; all else is alike
				}
				if rng.IntN(3000) == 0 {
					ns = 1e9 // the host stands still
				}
				r.took(seq, ns*math.Exp(0.004*rng.NormFloat64()))
			}
			if r.period%p != 0 || r.period == 0 {
				t.Errorf("seed %d: period %d, want %d", seed, r.period, p)
			}
		}
	}
}

// Where calls are charged what they add to a step one bucket tries at a time. One that begins anew, as it does when ranks can run more,
// tries nothing until it is asked: nobody waits for what it had under way.
func TestNobodyWaitsForABucketThatBeganAnew(t *testing.T) {
	core := coreOf(t, agents.NameDefault, Config{Explore: true, Reward: RewardExposed}, CommJoined{})
	m := core.comms[1]
	for log2 := range uint8(2) {
		core.Step(0, Marks{Comm: 1, Bucket: state.Bucket{Collective: actions.AllReduce, Log2Bytes: 10 + log2}, Set: 0b111})
	}
	m.exposure.rhythm.period = 1
	first, second := m.order[0], m.order[1]
	first.entry.Trials, m.tried = []actions.Action{treeSimple}, first
	if m.mayTry(second) || !m.mayTry(first) {
		t.Fatal("two buckets try at once, or the one that does may not go on")
	}
	core.Step(0, Marks{Comm: 1, Bucket: first.Bucket, Set: 0b111_111})
	if m.order[0] == first || !m.mayTry(second) || !m.mayTry(m.order[0]) {
		t.Error("a bucket that began anew keeps others from trying")
	}
}
