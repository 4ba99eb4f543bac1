package tuner

import (
	"math/rand/v2"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

var byRing = actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Channels: 2}

// farRig is a joiner of ranks 0 and 1; 2 and 3 are elsewhere.
type farRig struct {
	t   *testing.T
	j   joiner
	now state.Ns
}

func newFarRig(t *testing.T) *farRig {
	return &farRig{t: t, j: joiner{heard: 0b11, far: farOf(0b1100)}}
}

// tells reports what a rank tells of a call, and gives what the call came to.
func (r *farRig) tells(seq uint64, rank int32, us int) (state.Observation, bool) {
	o, bad, done := r.j.add(r.now, &Sample{Seq: seq, Rank: rank, SignalNs: state.Ns(us) * 1000, CounterNs: state.Ns(us) * 1000, EventTimed: true, Slow: us == 0,
		Bucket: state.Bucket{Collective: actions.AllReduce, Log2Bytes: 20}, Bytes: 1 << 20, Action: byRing, Ran: byRing})
	if bad && r.j.unclocked == 0 {
		r.t.Errorf("call %d is bad", seq)
	}
	return o, done
}

// wants a call to be complete with this rank's word, and to take so many us; 0: it is not complete.
func (r *farRig) wants(seq uint64, rank int32, us, cost int) {
	r.t.Helper()
	o, done := r.tells(seq, rank, us)
	if got := int(o.SignalNs+eventsNs+earlyNs(state.Bucket{Collective: actions.AllReduce}, byRing)) / 1000; done != (cost > 0) || done && got != cost {
		r.t.Errorf("call %d by rank %d: %d us, complete %v; want %d us", seq, rank, got, done, cost)
	}
}

// All are waited for, and the shortest time is the call's.
func TestElsewhere(t *testing.T) {
	r := newFarRig(t)
	r.wants(0, 2, 5, 0) // of a call that nobody here has made yet
	r.wants(1, 1, 400, 0)
	r.wants(1, 3, 90, 0)
	r.wants(1, 0, 500, 0)
	r.wants(1, 2, 100, 90)
	r.wants(1, 2, 50, 0)
	r.wants(2, 0, 500, 0)
	r.wants(2, 2, 450, 0)
	r.wants(2, 3, 450, 0)
	r.wants(2, 1, 400, 400)
	if r.j.late != 0 || r.j.told != 5 {
		t.Errorf("%d late, %d told", r.j.late, r.j.told)
	}
	r.wants(3, 0, 500, 0)
	r.wants(3, 1, 400, 0)
	r.wants(3, 3, 90, 0)
	if _, done := r.tells(3, 2, 0); !done || !r.j.slow {
		t.Error("a rank elsewhere whose host was slow: the call has no cost")
	}
}

// A rank elsewhere that tells no more, or never did, is waited for until its call is given up, and again once it tells; people hear
// nothing of it.
func TestElsewhereSilent(t *testing.T) {
	r := newFarRig(t)
	done := 0
	for seq := uint64(1); seq < 4*groupWindow; seq++ {
		r.tells(seq, 0, 500)
		if seq < groupWindow && seq%7 == 0 { // that it leaves out calls is no silence
			r.tells(seq, 2, 100)
		}
		if _, is := r.tells(seq, 1, 400); is {
			done++
		}
		if rank, silent := r.j.silent(); silent {
			t.Fatalf("rank %d is silent", rank)
		}
		if is := r.j.far.telling; is != 0b1100 && seq <= groupWindow || is != 0b0100 && seq == 3*groupWindow/2 || is != 0 && seq > 2*groupWindow {
			t.Fatalf("call %d: %b tell", seq, is)
		}
	}
	if want := 2 * groupWindow; done < want-32 || done > want+32 {
		t.Errorf("%d calls are complete without them, want about %d", done, want)
	}
	seq := uint64(4 * groupWindow)
	r.wants(seq, 0, 500, 0)
	r.wants(seq, 1, 400, 400)
	r.wants(seq, 2, 100, 0) // the call is over
	seq++
	r.wants(seq, 0, 500, 0)
	r.wants(seq, 1, 400, 0)
	r.wants(seq, 2, 100, 100)
}

// Where calls are rare it is given up by time, from the first call on that waits for it; that there is no call for long is no silence.
func TestElsewhereSilentForLong(t *testing.T) {
	r := newFarRig(t)
	const stops = 100 // rank 3 tells of calls before
	seq, done := uint64(0), 0
	call := func() {
		seq++
		r.tells(seq, 0, 500)
		if _, is := r.tells(seq, 1, 400); is {
			done++
		}
		r.tells(seq, 2, 100)
		if seq < stops {
			r.tells(seq, 3, 100)
		}
	}
	for ; seq < stops+60; r.now += 1e9 {
		if seq == stops/2 {
			r.now += 20 * farSilentNs
		}
		call()
		if is := r.j.far.telling; is != 0b1100 && seq <= stops+30 || is != 0b0100 && seq > stops+30 {
			t.Fatalf("call %d: %b tell", seq, is)
		}
	}
	if r.j.told != 2*stops-1+60 || done != 0 || r.j.incomplete != 0 {
		t.Errorf("%d told, %d complete with this host's ranks, %d incomplete", r.j.told, done, r.j.incomplete)
	}
	if is := r.j.open(); is != 31 {
		t.Errorf("%d calls waited for it, want 31", is)
	}
	r.tells(seq, 3, 100) // of a call that is over
	r.now += 1e9
	r.wants(seq+1, 0, 500, 0)
	r.wants(seq+1, 1, 400, 0)
	r.wants(seq+1, 2, 100, 0)
	r.wants(seq+1, 3, 90, 90)
}

// Where ranks elsewhere come late, by chance and by more than choices differ, what they tell is what is learnt by. Fixed seeds; what a
// call takes beside the wait is the regret.
func TestElsewhereLateRanks(t *testing.T) {
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}
	regret := func(seed uint64, tells bool, lateUs float64) float64 {
		p := newCaller(t, agents.NameUCB, Config{Explore: true, Guard: agents.DefaultGuardConfig(), SampleEvery: 1}, CommJoined{Shape: state.Shape{Ranks: 2, Nodes: 2}, Heard: 1}, b, 0b111_111)
		random := rand.New(rand.NewPCG(seed, 1))
		var waiting []*Sample
		var sum, best float64
		const calls, behind = 6000, 40
		for seq := range uint64(calls) {
			a, now := p.next(), state.Ns(seq*1e6)
			us := 100.0
			if isTree(a) {
				us = 80
			}
			own, late := us*(1+0.05*random.NormFloat64()), lateUs*random.ExpFloat64()
			if seq >= calls/2 {
				sum += us
				best += 80
			}
			p.core.Step(now, p.sample(seq, 0, a, a, state.Ns((own+late)*1000)))
			if tells {
				waiting = append(waiting, p.sample(seq, 1, a, a, state.Ns(own*1000)))
			}
			if len(waiting) > behind {
				p.core.Step(now, waiting[0])
				waiting = waiting[1:]
			}
			p.core.Step(now, Agreed{Comm: 1, Version: p.version})
			p.tick(now)
		}
		if totals := p.core.Totals(); tells != (totals.Elsewhere > calls*9/10) || totals.Incomplete > groupWindow+behind || tells && totals.Incomplete > behind || totals.Disagreed > 0 {
			t.Errorf("tells %v: %+v", tells, totals)
		}
		return sum/best - 1
	}
	var with, without, punctual float64
	const seeds = 5
	for seed := range uint64(seeds) {
		with += regret(seed, true, 300) / seeds
		without += regret(seed, false, 300) / seeds
		punctual += regret(seed, false, 0) / seeds
	}
	t.Logf("regret of the last half: %.3f; %.3f where ranks elsewhere tell nothing, %.3f where none is late", with, without, punctual)
	if with > punctual+0.02 || without < 2*with {
		t.Errorf("regret %.3f where ranks elsewhere tell, %.3f where they do not, %.3f where none is late", with, without, punctual)
	}
}

// A rank elsewhere whose word comes when its call was given up is one that does not tell.
func TestElsewhereTooLate(t *testing.T) {
	r := newFarRig(t)
	done := 0
	const calls, behind = 8 * groupWindow, groupWindow + 100
	for seq := uint64(1); seq < calls; seq++ {
		r.tells(seq, 0, 500)
		if _, is := r.tells(seq, 1, 400); is {
			done++
		}
		if seq > behind {
			r.tells(seq-behind, 2, 100)
			r.tells(seq-behind, 3, 100)
		}
	}
	if want := calls - groupWindow - 2*32; done < want {
		t.Errorf("%d calls are complete, want %d", done, want)
	}
}

// What a rank elsewhere ran must be what ran here.
func TestElsewhereDisagrees(t *testing.T) {
	for what, other := range map[string]func(s *Sample){
		"bucket": func(s *Sample) { s.Bucket.Log2Bytes++ },
		"action": func(s *Sample) { s.Action = actions.Default },
		"ran":    func(s *Sample) { s.Ran.Algorithm = actions.Tree },
	} {
		j := joiner{heard: 0b01, far: farOf(0b10)}
		s := Sample{Seq: 1, SignalNs: 1000, CounterNs: 1000, EventTimed: true, Bucket: state.Bucket{Collective: actions.AllReduce, Log2Bytes: 20}, Action: byRing, Ran: byRing}
		j.add(0, &s)
		s.Rank = 1
		other(&s)
		if _, bad, done := j.add(0, &s); !done || !bad || j.disagreed != 1 {
			t.Errorf("%s: complete %v, bad %v, %d disagreed", what, done, bad, j.disagreed)
		}
	}
}

// A rank may be done with a Broadcast or Reduce early: that it took little there says nothing of the call.
func TestElsewhereEarly(t *testing.T) {
	for _, c := range []actions.Collective{actions.Broadcast, actions.AllReduce} {
		j := joiner{heard: 0b01, far: farOf(0b10)}
		var o state.Observation
		sound := false
		for seq := uint64(1); seq < 20; seq++ {
			s := Sample{Seq: seq, StartNs: seq * 1e6, ClockNs: 5, SignalNs: 500_000, CounterNs: 500_000, EventTimed: true, Bucket: state.Bucket{Collective: c, Log2Bytes: 20}, Action: byRing, Ran: byRing}
			j.add(0, &s)
			s.Rank, s.SignalNs, s.CounterNs = 1, 30_000, 30_000
			var bad bool
			o, bad, _ = j.add(0, &s)
			sound = !bad
		}
		if early := o.SignalNs < 100_000; !sound || early != (c == actions.AllReduce) {
			t.Errorf("%v: sound %v, %d ns", c, sound, o.SignalNs)
		}
	}
}
