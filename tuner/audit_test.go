package tuner

import (
	"math"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

// comparing is an audit of steps of two calls, whose first block is under way with a plan of version 8.
func comparing() *audit {
	a := &audit{phase: auditCompares, rhythm: &rhythm{}, duel: newDuel(true, 1, 1)}
	for seq := range uint64(rhythmFirst) {
		a.rhythm.hear(seq, 1+seq%2)
	}
	a.block, a.rhythm.fixed = auditBlock{version: 8}, true
	return a
}

// A step counts where it lies within its block and behind its beginning; less what timing its calls has added. Several are measured as one
// where the call at which one ends and the next begins was not heard, or not timed.
func TestWhatABlockCounts(t *testing.T) {
	a := comparing()
	seq, now := uint64(rhythmFirst), int64(1e9)
	steps := func(n int, plan uint32, ns int64) {
		for range n {
			a.hear(heardCall{seq: seq, kind: 1}, false, plan, now, now+100, 1000)
			a.hear(heardCall{seq: seq + 1, kind: 2}, false, plan, now+ns/2, now+ns/2+100, 2000)
			seq, now = seq+2, now+ns+3000 // which timing has added
		}
	}
	count := func(what string, want int) {
		t.Helper()
		if got := len(a.block.logNs); got != want {
			t.Errorf("%s: %d steps, want %d", what, got, want)
		}
		for _, x := range a.block.logNs {
			if math.Abs(x-math.Log(1e6)) > 1e-9 {
				t.Fatalf("%s: a step of %.0f ns", what, math.Exp(x))
			}
		}
	}
	steps(5, 7, 2e6) // of the plan before
	count("before", 0)
	steps(1+auditLead, 8, 1e6)
	count("lead", 0)
	steps(4, 8, 1e6)
	count("block", 4)
	seq, now = seq+2, now+1e6 // a step that nobody heard
	steps(2, 9, 1e6)
	count("gap", 6)
	a.hear(heardCall{seq: seq, kind: 1}, false, 9, 0, 0, 0) // calls without instants
	a.hear(heardCall{seq: seq + 1, kind: 2}, false, 9, 0, 0, 0)
	seq, now = seq+2, now+1e6
	steps(2, 9, 1e6)
	count("not timed", 8)
	if a.block.steps != 10 {
		t.Errorf("%d steps in all", a.block.steps)
	}
	a.hear(heardCall{seq: seq, kind: 9}, false, 9, now, now, 0) // another call: from here on nobody knows which place a call has
	seq++
	for range rhythmEvery / 2 {
		steps(1, 9, 1e6)
	}
	count("found again", 8)
	steps(2, 9, 1e6)
	count("behind it", 10)
	a.block = auditBlock{awaits: true}
	steps(4, 9, 1e6)
	count("not published", 0)
	a.published(10)
	steps(4, 9, 1e6)
	count("not in force", 0)
	steps(5, 10, 1e6)
	count("in force", 2)
}

// The first audit waits for choices to settle, or for patience to end; later ones for a hundred times what the last one took, and twice
// that each time where nothing changes.
func TestWhenAnAuditIsDue(t *testing.T) {
	var d auditDue
	d.since(5000, false)
	if d.now(50_000, 0) {
		t.Error("due where nothing is chosen")
	}
	d.since(6000, true)
	if d.now(6000+auditSettled-1, 0) || !d.now(6000+auditSettled, 0) {
		t.Error("not due as soon as choices have settled")
	}
	for at := uint64(6500); at < 6000+auditPatience; at += 500 {
		if d.changes(at); d.now(at, 0) {
			t.Fatal("due while choices change")
		}
	}
	if !d.now(6000+auditPatience, 0) {
		t.Error("never due while choices change")
	}
	if dear := uint64(6000 + 10*(rhythmFirst+rhythmCalls)); d.now(dear-1, 0.5) || !d.now(dear, 0.5) {
		t.Error("calls that are dearer by half for being timed are due when others are")
	}
	first := func(from uint64) (calls uint64) {
		for at := from + auditSettled; ; at += 100 {
			if d.now(at, 0) {
				return at - from
			}
		}
	}
	at, used := uint64(30_000), uint64(0)
	for i, want := range []uint64{100, 200, 400} {
		d.ended(at, 1000, 0)
		got := first(at)
		if d.since(at, true); got != want*1000 {
			t.Errorf("audit %d: the next one %d calls later, want %d", i+2, got, want*1000)
		}
		at += got
	}
	d = auditDue{known: true}
	at = 0
	for range 60 {
		d.ended(at, 1000, 0)
		d.changes(at)
		at, used = at+first(at), used+1000
	}
	if share := float64(used) / float64(at); share > 1.3*auditShare {
		t.Errorf("where choices change all the time audits take %.4f of the calls", share)
	}
}

// auditedComm is a core whose communicator compares blocks under way, that of NCCL's default first.
func auditedComm(t *testing.T) (*Core, *comm) {
	t.Helper()
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 20}
	core := coreOf(t, agents.NameUCB, Config{Explore: true, StepGuard: true, Guard: agents.DefaultGuardConfig()}, CommJoined{Prior: before(b, parse(t, "Ring/LL/8")[0])})
	core.Step(0, Marks{Comm: 1, Bucket: b, Set: 0b111_111})
	core.Step(0, Tick{})
	core.Step(0, Published{Comm: 1, Version: 1})
	m := core.comms[1]
	if !m.chooses() {
		t.Fatal("the stored choice is not in force")
	}
	a := m.audit
	a.phase, a.rhythm = auditCompares, &rhythm{}
	for a.duel = newDuel(true, 1, 1); !a.duel.byDefault(); {
		a.number++
		a.duel = newDuel(true, 1, a.number)
	}
	a.begins(m.newest)
	m.touched = true
	return core, m
}

// A size that is called for the first time ends an audit, and what was chosen is in force again; so does a block that never comes to an end.
func TestAuditsEnd(t *testing.T) {
	choices := func(out Output) int {
		if len(out.Plans) != 1 {
			t.Fatalf("%d plans", len(out.Plans))
		}
		n := 0
		for _, e := range out.Plans[0].Called() {
			if e.Base != actions.Default {
				n++
			}
		}
		return n
	}
	for name, end := range map[string]func(*Core, *comm){
		"a new size": func(c *Core, m *comm) {
			c.Step(0, Marks{Comm: 1, Bucket: state.Bucket{Collective: actions.AllReduce, Log2Bytes: 9}, Set: 0b1})
		},
		"lost samples": func(c *Core, m *comm) { m.newest += auditSpare + 100; m.touched = true },
		"a contest":    func(c *Core, m *comm) { m.order[0].contest.on, m.touched = true, true },
		"a person's advice": func(c *Core, m *comm) {
			c.Step(0, Advised{Comm: 1, Prior: before(state.Bucket{Collective: actions.AllReduce, Log2Bytes: 20}, parse(t, "Ring/LL/8")[0])})
		},
	} {
		core, m := auditedComm(t)
		if n := choices(core.Step(0, Tick{})); n != 0 {
			t.Fatalf("%s: a block of NCCL's default with %d choices", name, n)
		}
		core.Step(0, Published{Comm: 1, Version: 2})
		end(core, m)
		if n := choices(core.Step(0, Tick{})); n != 1 || m.audit.phase != auditRests {
			t.Errorf("%s: %d choices in force, phase %d", name, n, m.audit.phase)
		}
	}
}

// What a person advises is in force in spite of a veto, of which nobody is told any more.
func TestAdviceLiftsAVeto(t *testing.T) {
	core, m := auditedComm(t)
	m.audit.rests(m)
	m.audit.vetoed, m.audit.told = true, &AuditView{LongerBy: 0.01, Vetoed: true}
	if v := core.Buckets()[0]; v.Choice != actions.Default || v.Audit == nil || v.Note != v.Audit.String() {
		t.Fatalf("%v under a veto, %+v, note %q", v.Choice, v.Audit, v.Note)
	}
	core.Step(0, Advised{Comm: 1, Prior: before(state.Bucket{Collective: actions.AllReduce, Log2Bytes: 20}, parse(t, "Ring/LL/8")[0])})
	m.touched = true
	plans := core.Step(0, Tick{}).Plans
	if v := core.Buckets()[0]; len(plans) != 1 || len(plans[0].Entries) != 1 || plans[0].Entries[0].Base == actions.Default || v.Audit != nil || v.Note != "" {
		t.Errorf("%+v, %+v, note %q", plans, v.Audit, v.Note)
	}
}

// Trials that are under way are waited for, and their entry gives way to one without before blocks begin: when it came back into a plan
// they would run again. Meanwhile nothing new is tried.
func TestAuditsWaitForTrials(t *testing.T) {
	core, m := auditedComm(t)
	a, b := m.audit, m.order[0]
	a.phase, a.duel, a.rhythm = auditListens, nil, &rhythm{period: 1, order: []uint64{1}}
	a.heard = rhythmFirst + rhythmCalls
	a.gaps.idle, a.gaps.all = 1, 1
	b.entry.Trials, b.nextTrial, b.published, b.seenAt = []actions.Action{treeSimple}, 0, true, m.observed
	tick := func() Output {
		m.touched, b.fresh = true, true
		out := core.Step(0, Tick{})
		for range out.Plans {
			core.Step(0, Published{Comm: 1, Version: 9})
		}
		return out
	}
	if tick(); a.phase != auditStills {
		t.Fatalf("phase %d once the step is known", a.phase)
	}
	if tick(); a.phase != auditStills {
		t.Fatal("blocks began beside a trial")
	}
	b.nextTrial = 1
	if out := tick(); a.phase != auditStills || len(out.Plans) != 1 || len(b.entry.Trials) != 0 {
		t.Fatalf("phase %d, %d plans, trials %v behind the last trial", a.phase, len(out.Plans), b.entry.Trials)
	}
	if tick(); a.phase != auditCompares {
		t.Errorf("phase %d once nothing is under way", a.phase)
	}
}

// A program may make other calls from the moment on at which its step is known: no block begins without one, and where none is found again
// the audit is over.
func TestStepThatIsLostBeforeBlocksBegin(t *testing.T) {
	core, m := auditedComm(t)
	a, b := m.audit, m.order[0]
	a.phase, a.duel, a.rhythm, a.from = auditStills, nil, &rhythm{period: 1, order: []uint64{1}}, m.newest
	b.entry.Trials, b.published = nil, true
	tick := func() {
		m.touched = true
		core.Step(0, Tick{})
	}
	if a.rhythm.hear(7, 2); a.rhythm.period != 0 {
		t.Fatal("a call that the step has not changed nothing")
	}
	if tick(); a.phase != auditListens || a.duel != nil {
		t.Fatalf("phase %d without a step", a.phase)
	}
	m.newest += rhythmPatience + 1
	if tick(); a.phase != auditRests {
		t.Errorf("phase %d behind all patience", a.phase)
	}
}

// Where plans come into force nobody knows when, where calls are charged what they add to the step, and where it is switched off there is no guard.
func TestWhoHasNoStepGuard(t *testing.T) {
	for name, c := range map[string]struct {
		cfg    Config
		joined CommJoined
		want   bool
	}{
		"guarded": {Config{StepGuard: true}, CommJoined{}, true},
		"off":     {Config{}, CommJoined{}, false},
		"exposed": {Config{StepGuard: true, Reward: RewardExposed}, CommJoined{}, false},
		"hosts":   {Config{StepGuard: true}, CommJoined{Shape: state.Shape{Ranks: 4, Nodes: 2}, Heard: 0b11}, false},
	} {
		if got := coreOf(t, agents.NameDefault, c.cfg, c.joined).comms[1].audit != nil; got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
