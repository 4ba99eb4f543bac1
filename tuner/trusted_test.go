package tuner

import (
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

// wronglyStored is a program whose stored choice takes 1.5 times the default's time. Trials are timed, and one in so many of all calls; the daemon
// is another one every so many calls, 0: never. It gives the calls of that choice.
func wronglyStored(t *testing.T, name string, timed, takeover int) (worse int) {
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}
	running := parse(t, "Ring/LL/8")[0]
	begin := func(joined CommJoined, base actions.Action) *caller {
		p := newCaller(t, name, Config{Explore: true, Guard: agents.DefaultGuardConfig(), WatchShare: 0.004}, joined, b, 0b111_111)
		p.entry.Base = base
		return p
	}
	p := begin(CommJoined{Prior: before(b, running)}, running)
	for seq := range uint64(20_000) {
		if takeover > 0 && seq > 0 && int(seq)%takeover == 0 {
			p = begin(CommJoined{InForce: map[state.Bucket]actions.Action{b: p.entry.Base}}, p.entry.Base)
		}
		trial := p.calls >= p.entry.Skip && p.calls < p.entry.Skip+len(p.entry.Trials)
		a, us := p.next(), 130.0
		switch a {
		case running:
			us = 150
			worse++
		case actions.Default:
			us = 100
		}
		now := state.Ns(seq * 130e3)
		if trial || int(seq)%timed == 0 {
			p.tell(now, seq, a, a, state.Ns(us*1000*(1+0.02*float64(seq%3))))
		}
		if seq%8 == 0 {
			p.tick(now)
		}
	}
	return worse
}

// A stored choice that is wrong goes soon where few calls are timed, too: until 2026-11-26 it was in force for 600 calls where one in 37 is,
// for 8,000 where one in 512 is, and for ever where a daemon took over every 320 calls.
func TestStoredChoiceThatIsWrongGoesThoughFewCallsAreTimed(t *testing.T) {
	for _, name := range []string{agents.NameLSTM, agents.NameUCB} {
		for _, of := range []struct{ timed, takeover int }{{1, 0}, {37, 0}, {512, 0}, {1, 10}, {1, 40}, {37, 40}, {37, 320}} {
			if worse := wronglyStored(t, name, of.timed, of.takeover); worse > 150 {
				t.Errorf("%s, one call in %d is timed, another daemon every %d: %d calls of 20,000 are of the worse choice", name, of.timed, of.takeover, worse)
			}
		}
	}
}

// What is stored is trusted also where a rank learns late that it can run it (our own kernels: when all have opened their memory).
func TestStoredChoiceThatIsAllowedLateIsTrusted(t *testing.T) {
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}
	running := parse(t, "Ring/LL/8")[0]
	core := coreOf(t, agents.NameUCB, Config{Explore: true}, CommJoined{Prior: before(b, running)})
	for _, of := range []struct {
		marks MarkSet
		want  int
	}{{0b110_110, 0}, {0b111_111, agents.TrustedCalls}} {
		core.Step(0, Marks{Comm: 1, Bucket: b, Set: of.marks})
		if trusted := core.comms[1].buckets[b.Collective][b.Log2Bytes].guard.Trusted(); trusted != of.want {
			t.Errorf("marks %b: %d calls of what is stored are wanted, not %d", of.marks, trusted, of.want)
		}
	}
}
