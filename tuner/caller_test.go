package tuner

import (
	"slices"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/models"
	"dynamiccl/state"
)

// caller is a program whose ranks, one if nothing is said, make calls of one bucket one by one, as the newest plan of communicator 1 says, and counts them as ranks do.
type caller struct {
	core    *Core
	b       state.Bucket
	entry   Entry
	calls   int // since the entry came into force
	made    uint16
	version uint64
	ranks   int32

	findings *[]Finding // of ticks; nil: nobody wants them
	learned  []Learned  // at ticks
}

// coreOf is a core with the named learner and communicator 1, which may be explored and whose calls CUDA events time; one rank on two
// nodes, if nothing is said.
func coreOf(t testing.TB, learner string, cfg Config, e CommJoined) *Core {
	t.Helper()
	var err error
	if cfg.NewLearner, err = models.New(learner); err != nil {
		t.Fatal(err)
	}
	cfg.Seed = 1
	core, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if e.Shape == (state.Shape{}) {
		e.Shape = state.Shape{Ranks: 1, Nodes: 2}
	}
	e.Comm, e.EventTimed, e.Explore = 1, true, true
	core.Step(0, e)
	return core
}

// newCaller is a program whose bucket b has these marks.
func newCaller(t *testing.T, learner string, cfg Config, e CommJoined, b state.Bucket, marks MarkSet) *caller {
	t.Helper()
	core := coreOf(t, learner, cfg, e)
	core.Step(0, Marks{Comm: 1, Bucket: b, Set: marks})
	return &caller{core: core, b: b}
}

// next gives what the next call runs.
func (p *caller) next() actions.Action {
	p.calls++
	p.made++
	return p.entry.Action(p.calls)
}

// tell reports the call that next gave.
func (p *caller) tell(now state.Ns, seq uint64, a, ran actions.Action, ns state.Ns) {
	for r := range max(p.ranks, 1) {
		p.core.Step(now, p.sample(seq, r, a, ran, ns))
	}
}

// tellSlow reports it where the host of rank 0 took too long.
func (p *caller) tellSlow(now state.Ns, seq uint64, a actions.Action, ns state.Ns) {
	for r := range max(p.ranks, 1) {
		s := p.sample(seq, r, a, a, ns)
		if r == 0 {
			s.Slow, s.SignalNs, s.CounterNs = true, 0, 0
		}
		p.core.Step(now, s)
	}
}

func (p *caller) sample(seq uint64, r int32, a, ran actions.Action, ns state.Ns) *Sample {
	return &Sample{Comm: 1, Seq: seq, Rank: r, Bucket: p.b, Bytes: 1 << p.b.Log2Bytes, Action: a, Ran: ran, SignalNs: ns, CounterNs: ns, EventTimed: true,
		Made: p.made, Plan: uint32(p.version), EntryCall: uint8(min(p.calls, 255))}
}

// tick lets the daemon think, and takes up the plan that it speaks of. It gives the bucket's entry where that is a new one.
func (p *caller) tick(now state.Ns) (entry Entry, isNew bool) {
	out := p.core.Step(now, Tick{})
	if p.findings != nil {
		*p.findings = append(*p.findings, out.Findings...)
	}
	p.learned = append(p.learned, out.Learned...)
	for _, plan := range out.Plans {
		p.version++
		p.core.Step(now, Published{Comm: 1, Version: p.version})
		if e := entryOf([]Plan{plan}, p.b); e.ID != p.entry.ID {
			e.Trials = slices.Clone(e.Trials) // the core's own
			p.entry, p.calls, isNew = e, 0, true
		}
	}
	return p.entry, isNew
}
