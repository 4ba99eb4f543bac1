package tuner

import (
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

// playMarked makes calls of which LL on a ring takes half the default's time, and all others one and a half times as long.
func playMarked(p *caller, calls int) (best int) {
	for range calls {
		a, ns := p.next(), state.Ns(60_000)
		switch {
		case a == actions.Default:
			ns = 40_000
		case a.Algorithm == actions.Ring && a.Protocol == actions.LL:
			ns = 20_000
			best++
		}
		now := state.Ns(p.made) * 1000
		p.tell(now, uint64(p.made), a, a, ns+state.Ns(p.made%3)*200)
		p.tick(now)
	}
	return best
}

// A rank learns late that it can do more, or NCCL refuses something. What is in force stays, if it may, and what was measured and gained
// is not forgotten.
func TestLateMarksForgetNothing(t *testing.T) {
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 20}
	for what, marks := range map[string]MarkSet{"more": 0b111_111, "less": 0b111_000} {
		p := newCaller(t, agents.NameUCB, Config{Explore: true, SampleEvery: 1}, CommJoined{}, b, 0b111_011)
		playMarked(p, 3000)
		before := p.core.Buckets()[0]
		if before.Choice.Protocol != actions.LL {
			t.Fatalf("%s is in force", before.Choice)
		}
		p.core.Step(3000*1000, Marks{Comm: 1, Bucket: b, Set: marks})
		if best := playMarked(p, 100); best < 80 {
			t.Errorf("%s: %d of the next 100 calls are of what was in force", what, best)
		}
		if v := p.core.Buckets()[0]; v.Calls != before.Calls+100 || v.Ledger.Calls <= before.Ledger.Calls || v.Ledger.SavedNs < before.Ledger.SavedNs || v.MeasuredNs != before.MeasuredNs || v.SinceNs != before.SinceNs {
			t.Errorf("%s: %+v\nafter %+v", what, v, before)
		}
		p.core.Step(4000*1000, Marks{Comm: 1, Bucket: b, Set: 0b000_111})
		if playMarked(p, 20); p.core.Buckets()[0].Choice.Algorithm == actions.Ring {
			t.Errorf("%s is in force, and NCCL does not allow it", p.core.Buckets()[0].Choice)
		}
	}
}

// A choice from before, of which a rank learns late that it can run it, waits for that while the default is measured.
func TestChoiceFromBeforeWaitsForLateMarks(t *testing.T) {
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}
	running := parse(t, "Ring/LL/8")[0]
	for what, joined := range map[string]CommJoined{
		"stored":   {Prior: before(b, running)},
		"in force": {InForce: map[state.Bucket]actions.Action{b: running}},
	} {
		p := newCaller(t, agents.NameUCB, Config{Explore: true, SampleEvery: 1}, joined, b, 0b110_000)
		if playMarked(p, 200) != 0 {
			t.Fatal("no rank could run it")
		}
		for _, marks := range []MarkSet{0b110_110, 0b111_110} {
			p.core.Step(300*1000, Marks{Comm: 1, Bucket: b, Set: marks})
		}
		if e, _ := p.tick(300 * 1000); e.Base != running {
			t.Errorf("%s: %s is in force as soon as it may be", what, e.Base)
		}
	}
}

// What a person advises starts a bucket anew, and changes nothing of what was gained in it.
func TestAdviceForgetsNothingGained(t *testing.T) {
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 20}
	p := newCaller(t, agents.NameUCB, Config{Explore: true, SampleEvery: 1}, CommJoined{}, b, 0b111_111)
	playMarked(p, 3000)
	before := p.core.Buckets()[0].Ledger
	p.core.Step(3000*1000, Advised{Comm: 1, Prior: []Learned{{Key: Key{Bucket: b}, Action: parse(t, "Tree/Simple/8")[0]}}})
	if after := p.core.Buckets()[0].Ledger; before.SavedNs <= 0 || after != before {
		t.Errorf("%+v after %+v", after, before)
	}
}

// A name that turns out to stand for another kernel leaves the set, and nothing else that was measured with it; calls of it that were
// under way have the bucket start over no further time.
func TestMisnamedForgetsNothingElse(t *testing.T) {
	b := state.Bucket{Collective: actions.AllReduceRegistered, Log2Bytes: 20}
	ll := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL}
	core := kernelCore(t, Config{Explore: true}, CommJoined{})
	core.Step(1, Marks{Comm: 1, Bucket: b, Set: marksOf(b.Collective)})
	seq := uint64(0)
	call := func(asked, ran actions.Action) *bucket {
		for r := range int32(4) {
			core.Step(2, &Sample{Comm: 1, Seq: seq, Rank: r, Bucket: b, Bytes: 1 << 20, Action: asked, Ran: ran, SignalNs: 50_000, CounterNs: 50_000, EventTimed: true})
		}
		seq++
		return core.comms[1].buckets[b.Collective][b.Log2Bytes]
	}
	for range 10 {
		call(actions.Default, actions.Default)
	}
	made := call(actions.Default, actions.Default)
	for range misnamedCalls {
		made = call(ll, actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL128})
	}
	if made.calls != 11 || core.comms[1].prior(b) == nil {
		t.Errorf("%d calls are counted, known is %+v", made.calls, core.comms[1].prior(b))
	}
	for range 100 {
		if call(ll, actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL128}) != made {
			t.Fatal("the bucket starts over")
		}
	}
}
