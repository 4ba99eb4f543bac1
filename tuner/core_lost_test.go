package tuner_test

import (
	"flag"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// restless never has enough: it goes around its set for ever.
type restless struct {
	set []actions.Action
	at  int
}

func (r *restless) Name() string              { return "restless" }
func (r *restless) Observe(state.Observation) {}
func (r *restless) Shift(agents.Diagnosis)    {}
func (r *restless) Base() actions.Action      { return actions.Default }
func (r *restless) Propose(maxTrials int) (actions.Action, []actions.Action) {
	trials := []actions.Action{actions.Default} // which no budget refuses
	for range min(4, max(0, maxTrials-len(r.set))) {
		r.at++
		trials = append(trials, r.set[r.at%len(r.set)])
	}
	return actions.Default, trials
}

// distant plays ranks that run ahead of their GPU, and a daemon that hears of their calls late, in parts, or never.
type distant struct {
	core     *tuner.Core
	bucket   state.Bucket
	ns       state.Ns
	seq      uint64
	force    tuner.Entry // with the rank
	every    int
	id       uint32
	calls    int
	running  uint32
	pending  *tuner.Plan // not published yet
	next     *tuner.Plan
	version  uint64
	inFlight []flying
	lastID   uint32 // of the latest entry with trials
	observed int    // group calls since it was made
	entries  int
	sampling bool
	single   bool // trials are timed one by one
}

type flying struct {
	tuner.Sample
	trial   uint32 // the entry whose trial it is; 0: none
	sampled bool
}

func (d *distant) step(e tuner.Event) {
	for _, p := range d.core.Step(state.Ns(d.seq), e).Plans {
		p.Entries = slices.Clone(p.Entries)
		d.pending = &p
		for _, e := range p.Entries {
			if len(e.Trials) > 0 && e.ID != d.lastID {
				d.lastID, d.observed = e.ID, 0
				d.entries++
			}
		}
	}
}

// call makes one call, as nccltuner/plugin/tuner.c does.
func (d *distant) call() {
	if d.seq%epochCalls == 0 {
		if p := d.next; p != nil {
			d.next, d.running, d.every, d.force = nil, uint32(d.version), p.SampleEvery, tuner.Entry{}
			for _, e := range p.Entries {
				d.force = e
			}
		}
		d.sampling = d.sampling && d.seq/epochCalls%uint64(d.every) == 0
	}
	s := flying{Sample: tuner.Sample{Comm: comm, Seq: d.seq, Bucket: d.bucket, Bytes: 1 << d.bucket.Log2Bytes, Plan: d.running, SignalNs: d.ns}, sampled: d.sampling}
	if d.seq%epochCalls == 0 { // the first call of a window is none
		d.sampling = d.seq/epochCalls%uint64(d.every) == 0
	}
	if d.force.ID != d.id {
		d.id, d.calls = d.force.ID, 0
	}
	d.calls++
	s.Action = d.force.Action(d.calls)
	trial := d.calls > d.force.Skip && d.calls <= d.force.Skip+len(d.force.Trials)
	if trial {
		s.trial = d.id
	}
	s.Ran = s.Action
	if d.single {
		s.EventTimed, s.Made = true, uint16(d.seq+1)
		if d.id != 0 {
			s.EntryCall = uint8(min(d.calls, 255))
		}
		s.sampled = s.sampled || d.calls > 1 && trial
	}
	d.inFlight = append(d.inFlight, s)
	d.seq++
}

// hear brings the daemon what was sampled of the oldest calls, but for what is lost of it.
func (d *distant) hear(calls int, lost func() bool) {
	for range min(calls, len(d.inFlight)) {
		s := d.inFlight[0]
		d.inFlight = d.inFlight[1:]
		if s.sampled && !lost() {
			d.observed++
			d.step(&s.Sample)
		}
	}
}

// tick lets the daemon think, and speak where it has something to say.
func (d *distant) tick() (spoke bool) {
	d.step(tuner.Tick{})
	if d.pending == nil {
		return false
	}
	d.next, d.pending = d.pending, nil
	d.version++
	d.step(tuner.Published{Comm: comm, Version: d.version})
	return true
}

// under says whether trials of the entry are still to be made or to be heard of.
func (d *distant) under(id uint32) bool {
	return d.force.ID != id || d.calls < d.force.Skip+len(d.force.Trials) || slices.ContainsFunc(d.inFlight, func(s flying) bool { return s.trial == id && s.sampled })
}

func newDistant(t rapid.TB, cfg tuner.Config, ns state.Ns, single bool) *distant {
	cfg.NewLearner = func(task agents.Task) agents.Learner { return &restless{set: task.Set} }
	cfg.Explore = true
	core, err := tuner.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	d := &distant{core: core, bucket: state.Bucket{Collective: actions.AllReduce, Log2Bytes: 12}, ns: ns, every: 1, single: single}
	d.step(tuner.CommJoined{Comm: comm, Shape: state.Shape{Ranks: 1, Nodes: 2}, EventTimed: single, Explore: true})
	d.step(tuner.Marks{Comm: comm, Bucket: d.bucket, Set: classicMarks(actions.AllReduce)})
	return d
}

// Whatever is lost, and however late the daemon hears and speaks: as long as it hears of some calls, and its learner wants
// to try something, that is tried.
func TestTrialsGoOnWhateverIsLost(t *testing.T) {
	checks(t, "25")
	rapid.Check(t, func(t *rapid.T) {
		cfg := tuner.Config{SampleEvery: rapid.SampledFrom([]int{0, 0, 1, 8}).Draw(t, "every"),
			Guard: agents.DefaultGuardConfig().Budgeted(rapid.SampledFrom([]float64{0, 0.004, 0.01, 0.3}).Draw(t, "budget"))}
		d := newDistant(t, cfg, rapid.SampledFrom([]state.Ns{5_000, 20_700, 100_000, 1_000_000}).Draw(t, "ns"), rapid.Bool().Draw(t, "single"))
		behind := rapid.IntRange(0, 800).Draw(t, "behind")
		tick := rapid.IntRange(1, 300).Draw(t, "calls a tick")
		loss := rapid.IntRange(0, 9).Draw(t, "tenths lost")
		blocked := rapid.IntRange(0, 3).Draw(t, "ticks without a free buffer")
		burst := rapid.IntRange(1, 40).Draw(t, "calls lost in a row")
		rng, gone := rapid.Uint64().Draw(t, "seed"), 0
		lost := func() bool {
			if gone > 0 {
				gone--
				return true
			}
			rng = rng*6364136223846793005 + 1442695040888963407
			if int(rng>>33)%(10*burst) < loss {
				gone = burst - 1
				return true
			}
			return false
		}
		// In calls that are heard of: what is in flight, a tick, trials given up, a rest; and as much again as was watched
		// beyond what may be spent on it.
		limit := 3*(behind+(blocked+2)*tick+epochCalls) + 64 + 16 + 128 + 64
		waits := 0
		for range 12_000 / tick {
			for range tick {
				d.call()
			}
			d.hear(len(d.inFlight)-behind, lost)
			if waits++; waits <= blocked {
				d.step(tuner.Tick{})
			} else if d.tick() {
				waits = 0
			}
			if d.observed > limit {
				t.Fatalf("after %d calls: %d heard of since anything new was to be tried (entry %d), want at most %d", d.seq, d.observed, d.lastID, limit)
			}
		}
	})
}

// Programs run ahead of their GPU: until the trials of a plan are heard of nothing else is tried, for it would be the same
// again.
func TestTrialsAreWaitedFor(t *testing.T) {
	checks(t, "25")
	rapid.Check(t, func(t *rapid.T) {
		cfg := tuner.Config{Reward: rapid.SampledFrom([]tuner.Reward{tuner.RewardCall, tuner.RewardExposed}).Draw(t, "reward")}
		d := newDistant(t, cfg, 1_000_000, rapid.Bool().Draw(t, "single"))
		behind := rapid.IntRange(0, 2000).Draw(t, "behind")
		tick := rapid.IntRange(1, 100).Draw(t, "calls a tick")
		for range 3_000 / tick {
			for range tick {
				d.call()
			}
			d.hear(len(d.inFlight)-behind, func() bool { return false })
			before := d.lastID
			under := before != 0 && d.under(before)
			d.step(tuner.Tick{})
			if under && d.lastID != before {
				t.Fatalf("after %d calls: entry %d came while the trials of entry %d are under way", d.seq, d.lastID, before)
			}
			if d.pending != nil {
				d.next, d.pending = d.pending, nil
				d.version++
				d.step(tuner.Published{Comm: comm, Version: d.version})
			}
		}
		if least := 3_000 / (2 * (behind + 2*tick + 64)); d.entries < least {
			t.Errorf("%d entries with trials in 3,000 calls, want at least %d", d.entries, least)
		}
	})
}

// checks says how many cases a property with long ones is tried on, unless somebody asked for another number than rapid's own.
func checks(t *testing.T, n string) {
	t.Helper()
	f := flag.Lookup("rapid.checks")
	before := f.Value.String()
	if before != f.DefValue {
		return
	}
	if err := f.Value.Set(n); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Value.Set(before) })
}
