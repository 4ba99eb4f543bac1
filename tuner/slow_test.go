package tuner

import (
	"math/rand/v2"
	"slices"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// newSlowCase is a silentCase of which all is told; after so many calls these percentages of bulk's and of all other calls are slow.
func newSlowCase(t *testing.T, learner string, seed uint64, from, bulk, others int) *silentCase {
	rng := rand.New(rand.NewPCG(seed, 1))
	s := newSilentCase(t, learner, nil)
	s.slow = func(a actions.Action, calls int) bool {
		percent := others
		if isBulk(a) {
			percent = bulk
		}
		return calls > from && rng.IntN(100) < percent
	}
	return s
}

// bulkOf plays and gives the part of the calls that were bulk's.
func (s *silentCase) bulkOf(calls int) float64 {
	before := s.inBulk
	s.play(calls)
	return float64(s.inBulk-before) / float64(calls)
}

func (s *silentCase) choice() actions.Action { return s.core.Buckets()[0].Choice }

// The fast calls of what is mostly slow look twice as good as all else: they do not keep it in force, whoever learns, from the beginning or
// when it has become so.
func TestMostlySlowChoiceIsDropped(t *testing.T) {
	for _, c := range []struct {
		from, bulk, others int
		most               float64 // part of the calls
	}{
		{0, 90, 0, 0.02}, {3000, 90, 0, 0.02}, {3000, 100, 0, 0.02}, {3000, 50, 0, 0.10}, {3000, 30, 0, 0.35}, {3000, 90, 30, 0.03},
	} {
		for _, learner := range silentLearners {
			for seed := range uint64(2) {
				s := newSlowCase(t, learner, seed, c.from, c.bulk, c.others)
				if s.play(c.from); c.from > 0 && !isBulk(s.choice()) {
					t.Errorf("%s, %d: %s is in force before", learner, seed, s.choice())
				}
				if share := s.bulkOf(20_000); share > c.most {
					t.Errorf("%s, %d: %d%% of the best one's calls are slow and %d%% of all others, and %.0f%% are its", learner, seed, c.bulk, c.others, 100*share)
				}
			}
		}
	}
}

// A host that is as slow with any choice is no reason to do without the best, for good or for a while.
func TestLoadedHostKeepsItsChoices(t *testing.T) {
	for _, percent := range []int{20, 50, 90, 95} {
		for _, learner := range silentLearners {
			for seed := range uint64(3) {
				s := newSlowCase(t, learner, seed, 3000, percent, percent)
				s.play(3000)
				if share := s.bulkOf(20_000); share < 0.85 || !isBulk(s.choice()) {
					t.Errorf("%s, %d: %d%% of all calls are slow, and %.0f%% are the best one's; %s is in force", learner, seed, percent, 100*share, s.choice())
				}
			}
		}
	}
}

// Nor one that has a CPU by turns: what was told long ago is no pair of what is told now.
func TestHostThatIsSlowByTurnsKeepsItsChoices(t *testing.T) {
	for _, turn := range []int{20, 100, 300, 1000} {
		for _, learner := range silentLearners {
			s := newSlowCase(t, learner, 1, 3000, 0, 0)
			s.slow = func(_ actions.Action, calls int) bool { return calls > 3000 && calls/turn%2 == 0 }
			s.play(3000)
			if share := s.bulkOf(20_000); share < 0.9 || !isBulk(s.choice()) {
				t.Errorf("%s, turns of %d: %.0f%% are the best one's; %s is in force", learner, turn, 100*share, s.choice())
			}
		}
	}
}

// What was slow for some thousand calls comes back.
func TestPassingSlownessCostsNoChoice(t *testing.T) {
	for _, learner := range silentLearners {
		s := newSlowCase(t, learner, 1, 3000, 95, 0)
		if s.play(7000); isBulk(s.choice()) {
			t.Errorf("%s: it was not dropped", learner)
		}
		if slow := s.slow; slow(actions.Default, s.allCalls) {
			t.Fatal("the default is slow")
		}
		s.slow = nil
		if s.play(5000); !isBulk(s.choice()) || len(s.core.Buckets()[0].Silent) > 0 {
			t.Errorf("%s: %s is in force, %s have left", learner, s.choice(), names(s.core.Buckets()[0].Silent))
		}
	}
}

// Where one epoch in 64 is watched it takes no more calls that are watched: trials say it.
func TestMostlySlowChoiceIsDroppedWhereFewAreWatched(t *testing.T) {
	for _, learner := range silentLearners {
		s := newSlowCase(t, learner, 1, 3000, 90, 0)
		s.timed = func(seq int) bool { return s.allCalls < 3000 || seq/16%64 == 0 }
		s.play(3000)
		if share := s.bulkOf(100_000); share > 0.10 || isBulk(s.choice()) {
			t.Errorf("%s: %.0f%% of the calls are its, %s is in force", learner, 100*share, s.choice())
		}
		s = newSlowCase(t, learner, 1, 3000, 100, 0)
		s.timed = func(int) bool { return s.allCalls < 3000 } // what looks find
		s.play(3000)
		s.callNs = 20_000
		if share := s.bulkOf(200_000); share > 0.5 || isBulk(s.choice()) {
			t.Errorf("%s: %.0f%% of the calls are its, %s is in force, which is looked at alone", learner, 100*share, s.choice())
		}
	}
}

// What one choice did is not held against another that takes its place.
func TestContestIsOfOneChoice(t *testing.T) {
	s := newSlowCase(t, "ucb", 1, 3000, 0, 0)
	s.play(3000)
	b := s.core.comms[1].order[0]
	b.contest.latest = 1
	b.contest.begin()
	b.contest.ratio, b.contest.waiting, b.contest.ofBase = 3, []bool{true, true}, true
	id := b.entry.ID
	s.now += 2 * state.Ns(lookAfterNs)
	b.fresh = true
	if s.tick(s.now); b.entry.ID == id || len(b.contest.waiting) > 0 || b.contest.ratio != 3 || b.entry.Trials[0] != actions.Default || !isBulk(b.entry.Trials[1]) {
		t.Errorf("a new entry: %+v, %+v", b.entry, b.contest)
	}
	for range 2000 {
		a := s.next()
		s.allCalls++
		cost := s.cost(a)
		if isBulk(a) {
			cost = 100_000
		}
		s.tell(s.now, uint64(s.allCalls), a, a, cost)
		if s.tick(s.now); b.entry.Base == actions.Default {
			break
		}
	}
	if b.entry.Base != actions.Default || b.contest.on || b.contest.latest != 0 || b.contest.ratio != 0 {
		t.Errorf("%s: %+v", b.entry.Base, b.contest)
	}
}

// Where nothing is explored any more nothing is contested.
func TestNoContestWithoutExploration(t *testing.T) {
	s := newSlowCase(t, "ucb", 1, 3000, 90, 0)
	s.play(3000)
	s.core.SetExplore(false)
	for range 2000 {
		s.play(1)
		if v := s.core.Buckets()[0]; !isBulk(v.Choice) || v.Exploring {
			t.Fatalf("call %d: %s is in force, exploring %v", s.allCalls, v.Choice, v.Exploring)
		}
	}
}

// What gains more with each call than a slow call is known to lose stays: hosts of long calls are ahead of their GPUs.
func TestSlowHostsOfLongCallsCostNoChoice(t *testing.T) {
	for _, c := range []struct {
		scale state.Ns
		stays bool
	}{{1, false}, {10, false}, {20, true}, {1000, true}} {
		s := newSlowCase(t, "ucb", 1, 3000, 90, 0)
		s.scale = c.scale // bulk gains 30 us by itself
		s.play(3000)
		if share := s.bulkOf(20_000); share > 0.95 != c.stays {
			t.Errorf("%d us for %d: %.0f%% of the calls are its", 10*c.scale, 40*c.scale, 100*share)
		}
	}
}

// One contest in a thousand is lost by a choice that is as slow as the default, whatever hosts do, and none is won by one that is slow in nine
// calls of ten; each ends.
func TestContestDecides(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const contests = 20_000
	for _, p := range []struct {
		base, first float64
		most, least int // of so many lost
	}{{0.2, 0.2, contests / 1000, 0}, {0.5, 0.5, contests / 1000, 0}, {0.9, 0.9, contests / 1000, 0}, {0.2, 0.9, 0, 0}, {0.9, 0, contests, contests * 999 / 1000}, {0.9, 0.3, contests, contests * 95 / 100}} {
		lost, longest := 0, 0
		for range contests {
			var c contest
			c.latest = 1<<contestFrom - 1
			if !c.wanted(0) {
				t.Fatal("none begins")
			}
			n := 0
			for c.begin(); c.on; n++ {
				c.hears(false, rng.Float64() < p.first, 0)
				c.hears(true, rng.Float64() < p.base, 0)
			}
			longest = max(longest, n)
			if c.lost {
				lost++
			} else if c.pause != contestPause || c.next != contestPause || c.wanted(contestPause-1) {
				t.Fatalf("the next one comes after %d calls", c.next)
			}
		}
		if lost > p.most || lost < p.least || longest > contestMost+1 {
			t.Errorf("%.1f slow for %.1f: %d of %d are lost, the longest had %d pairs", p.base, p.first, lost, contests, longest)
		}
	}
}

// Calls of different entries are no pair, nor are those behind the trials; what is slow no more ends a contest.
func TestContestPairs(t *testing.T) {
	var c contest
	c.latest = 1<<contestFrom - 1
	c.begin()
	for range 100 {
		c.hears(true, true, 0)
	}
	if len(c.waiting) != MaxTrials || c.pairs != 0 {
		t.Errorf("%d wait, %d pairs", len(c.waiting), c.pairs)
	}
	c.apart()
	c.hears(false, false, 0)
	if c.pairs != 0 || c.ratio != 0 {
		t.Errorf("%d pairs over entries", c.pairs)
	}
	c.hears(true, true, 0)
	c.hears(true, false, 0)
	c.hears(false, true, 0)
	if want := contestFor + contestAgainst; c.pairs != 2 || c.ratio != want {
		t.Errorf("%d pairs, %g for %g", c.pairs, c.ratio, want)
	}
	for range 16 {
		c.hears(true, false, 7)
	}
	if c.on || c.lost || c.next != 7+contestPause {
		t.Errorf("on %v, lost %v, next %d", c.on, c.lost, c.next)
	}
}

// A call that a rank has no times of is known to have been made, and costs nothing that anybody knows, whatever the others say.
func TestSlowCallsAreNoMissingOnes(t *testing.T) {
	const ranks = 3
	for slow := range ranks + 1 { // ranks: none
		j := &joiner{heard: allRanks(ranks)}
		groups := NewGroups(ranks)
		for seq := range uint64(2 * groupWindow) {
			for r := range int32(ranks) {
				s := &Sample{Seq: seq, Rank: r, Bytes: 1 << 20, Action: treeLL, Ran: treeLL, Plan: 7, EntryCall: 9, EventTimed: true, SignalNs: 5000, CounterNs: 5000}
				if int(r) == slow && seq%10 > 0 {
					s.Slow, s.SignalNs, s.CounterNs = true, 0, 0
				}
				o, bad, done := j.add(0, s)
				_, ok := groups.Add(s)
				if done != (r == ranks-1) || done && !bad && (o.Action != treeLL || o.Plan != 7 || o.EntryCall != 9 || o.Seq != seq) {
					t.Fatalf("rank %d of call %d: %+v, %v, %v", r, seq, o, bad, done)
				}
				if isSlow := slow < ranks && seq%10 > 0; done && (j.slow != isSlow || isSlow && (o.SignalNs != 0 || ok)) {
					t.Fatalf("rank %d of call %d: slow %v, cost %d, %v", r, seq, j.slow, o.SignalNs, ok)
				}
			}
		}
		if j.incomplete+j.late+j.disagreed+j.incoherent > 0 {
			t.Errorf("%d: %+v", slow, j)
		}
		if _, silent := j.silent(); silent {
			t.Error("a rank is called silent")
		}
	}
}

// Slow calls are counted, told to people when they cost a choice its place, and move no estimate.
func TestSlowCallsAreNoCosts(t *testing.T) {
	s := newSlowCase(t, "ucb", 1, 3000, 100, 0)
	s.play(3000)
	calls, measured := s.core.Buckets()[0].Calls, 0
	for _, c := range s.core.Buckets()[0].Choices {
		measured += c.Estimate.N
	}
	for n := range 3 {
		a := s.next()
		s.allCalls++
		s.tellSlow(s.now, uint64(s.allCalls), a, s.cost(a))
		after := 0
		for _, c := range s.core.Buckets()[0].Choices {
			after += c.Estimate.N
		}
		if v := s.core.Buckets()[0]; v.Calls != calls+uint64(n)+1 || after != measured || s.core.Totals().Slow != uint64(n)+1 {
			t.Errorf("%d calls for %d, %d measured for %d, %d slow", v.Calls, calls, after, measured, s.core.Totals().Slow)
		}
	}
	other := s.sample(uint64(s.allCalls+1), 0, s.choice(), actions.Action{Path: actions.PathLSA, Kernel: actions.OneShot, Channels: 4}, 0)
	other.Slow = true
	for other.Rank = range s.ranks {
		s.core.Step(0, other)
	}
	if s.allCalls++; s.core.Totals().Slow != 4 || s.core.Buckets()[0].Calls != calls+3 {
		t.Error("what did not run is slow")
	}
	left := s.choice()
	var found []Finding
	for len(found) == 0 && s.allCalls < 4000 {
		a := s.next()
		s.allCalls++
		if isBulk(a) {
			s.tellSlow(s.now, uint64(s.allCalls), a, s.cost(a))
		} else {
			s.tell(s.now, uint64(s.allCalls), a, a, s.cost(a))
		}
		s.findings = &found
		s.tick(s.now)
	}
	if len(found) != 1 || found[0].Text != left.String()+" leaves: its calls keep a host for more than 0.5 ms far more often than those of NCCL's default" ||
		!slices.Contains(s.core.Buckets()[0].Silent, left) || s.choice() == left {
		t.Errorf("%+v", found)
	}
}
