package tuner

import (
	"math"
	"math/rand/v2"
	"slices"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

// pickupCalls is how many calls of a bucket may pass under a plan before trials that were not seen are given up: others may
// have taken the bucket's place in the plan, or NCCL runs something else.
const pickupCalls = 64

// restCalls is how many calls a bucket that has settled rests between two looks at it; what is urgent does not wait.
const restCalls = 16

// bucket is all that is known of one bucket of one communicator.
type bucket struct {
	state.Bucket
	differ bool // ranks do not agree on NCCL's marks: passes through
	keeps  bool // what the store has of it was chosen by others, and nobody chooses here
	// assumed is what was measured best before this bucket was made: in force with an earlier daemon, or stored. It is the
	// base until the guard judges or drops it, or until conditions change; where nothing may be explored it stays.
	assumed  actions.Action
	stored   float64  // speed-up of assumed as the store has it; 0: not known
	storedNs state.Ns // when assumed came to be chosen, as the store has it; 0: not known
	set      []actions.Action
	allowed  []actions.Action // set, with what is left out for now
	guard    *agents.Guard    // round the learner
	detector *agents.Detector

	entry      Entry
	sinceNs    state.Ns // of entry.Base
	published  bool     // the entry is in a plan that ranks have
	since      uint32   // version of the first such plan
	nextTrial  int      // entry.Trials[:nextTrial] have been observed, or lost
	sinceTrial int      // calls observed since the entry came into force
	passed     int      // calls made since then
	warmAt     int      // of entry.Trials, the first of those that only warm up; -1: none
	fresh      bool     // something happened since the last propose that a learner may answer
	rested     int      // calls observed since the last propose, while settled
	look       look
	made       uint16 // calls so far as the newest observed one counts them,
	counted    bool   // if one did

	idle    idle
	silence silence
	contest contest

	warm      []actions.Action // our own kernels that have run
	misnamed  []actions.Action // an action as often as its name has brought about another
	calls     uint64
	seenAt    uint64 // comm.observed when it was last observed
	ledger    Ledger
	learnedAt uint64   // calls when the store was last told
	told      *Learned // and what; nil: nothing yet

	diagnosis  agents.Diagnosis
	diagNs     state.Ns
	diagBefore bool     // both are the store's
	diagUntold bool     // both are to be told to the store
	firstNs    state.Ns // when its first call was measured; 0: none was
}

func newBucket(b state.Bucket, set []actions.Action, differ bool, learner agents.NewLearner, design agents.Design,
	cfg agents.GuardConfig, topology state.Topology, peers *agents.Peers, prior *Learned, inForce actions.Action, rng *rand.Rand) *bucket {
	var costs map[actions.Action]float64
	assumed, stored, storedNs := actions.Default, 0.0, state.Ns(0)
	if prior != nil {
		costs = costsIn(set, prior.Evidence)
		if prior.Calls > 0 { // an imported choice was measured by nobody
			assumed, storedNs = sameIn(set, prior.Action), prior.SinceNs
			if prior.CostNs > 0 {
				stored = prior.Default / prior.CostNs
			}
		}
	}
	if inForce = sameIn(set, inForce); inForce != actions.Default && inForce != assumed {
		assumed, stored, storedNs = inForce, 0, 0
	}
	if !slices.Contains(set, assumed) {
		assumed, storedNs = actions.Default, 0
	}
	task := agents.Task{Set: set, Bucket: b, Topology: topology, Prior: costs, Peers: peers, Rand: rng}
	guard := agents.NewGuard(learner(task), set, b, costs, cfg)
	made := &bucket{Bucket: b, differ: differ, assumed: assumed, stored: stored, storedNs: storedNs, set: set, guard: guard, detector: agents.NewDetector(design), fresh: true,
		entry: Entry{Bucket: b}, warmAt: -1}
	if prior != nil && prior.DiagnosisNs != 0 {
		made.diagnosis, made.diagNs, made.diagBefore = prior.Diagnosis, prior.DiagnosisNs, true
	}
	if assumed == actions.Default {
		made.sinceNs = storedNs // the first entry's base already
	}
	return made
}

// newBucket makes one of a communicator, with what is known of it.
func (c *Core) newBucket(m *comm, b state.Bucket, allowed []actions.Action, differ bool) *bucket {
	m.dirty, m.touched = true, true
	old := m.buckets[b.Collective][b.Log2Bytes]
	var quiet silence
	if old != nil {
		quiet.quiet, quiet.lost = old.silence.quiet, old.silence.lost
	}
	rng := rand.New(rand.NewPCG(c.cfg.Seed^uint64(m.Comm), uint64(b.Collective)<<8|uint64(b.Log2Bytes)))
	prior, inForce := m.fittingPrior(b), m.fitting(b, m.InForce[b])
	keeps := false
	if c.cfg.Observe {
		inForce = actions.Default
		if stored := m.prior(b); stored != nil && stored.Calls > 0 && stored.Action != actions.Default {
			prior, keeps = nil, true
		}
	}
	made := newBucket(b, m.without(b, &quiet, allowed), differ, c.cfg.NewLearner, c.design, c.cfg.Guard, state.Topology{Shape: m.Shape, NICs: m.NICs}, m.peers, prior, inForce, rng)
	made.keeps = keeps
	made.guard.Keep(made.assumed, m.trusted(old, made)) // judged by trials of its own: a learner that wants the default thinks that calls show what that costs
	made.allowed, made.silence = allowed, quiet
	if old != nil { // what was said of it and counted holds for every set of choices
		made.diagnosis, made.diagNs, made.diagBefore, made.diagUntold = old.diagnosis, old.diagNs, old.diagBefore, old.diagUntold
		made.warm, made.calls, made.firstNs, made.seenAt, made.ledger = old.warm, old.calls, old.firstNs, old.seenAt, old.ledger
		made.learnedAt, made.told = old.learnedAt, old.told
	}
	made.detector.Share(&m.noise)
	made.guard.Withhold(func(a actions.Action) bool { return m.connects(b.Collective, a) })
	return made
}

// trusted is how many calls are wanted of what is assumed. Where an earlier daemon had it in force the program's first calls are over: who took
// over every few calls would trust it for ever.
func (m *comm) trusted(old, made *bucket) int {
	switch {
	case old != nil && slices.Contains(old.set, made.assumed):
		return old.guard.Trusted()
	case m.InForce[made.Bucket] != actions.Default:
		return 0
	}
	return agents.TrustedCalls // of the store, and a rank may have learned only now that it can run it
}

// A guard drops a choice after three bad calls, and then nobody runs it any more and the detector never gets the calls
// that an alarm needs. Most of an alarm and a guard that reverts are taken for one: three calls that are beyond doubt
// reach 0.9 of the threshold; at half of it, noise alone made choices that are hardly better start over every few seconds.
const revertAlarm = 0.75

// asLearned has the counter as learners can compare it. What NCCL runs is told of when it is over, and nothing else of its sends; what
// learners read is an action's share of counter in signal beside that of NCCL's default. So to them our kernels' sends are over with
// the call, too, as they were before kernels told of them.
func asLearned(o state.Observation) state.Observation {
	if o.Ran.Path == actions.PathLSA && o.CounterNs != 0 {
		o.CounterNs = o.SignalNs
	}
	return o
}

// observe takes in one group call: as it is charged, which choices are made on, and as it was, in which the fabric shows.
func (b *bucket) observe(charged, o state.Observation) agents.Alarm {
	reverts, shifts := b.guard.Reverts(), b.guard.Shifts()
	b.guard.Observe(asLearned(charged)) // ignores an action of an older plan that is no longer allowed
	b.pass(&o)
	b.silence.learns(charged.Action)
	b.ledger.book(charged, b.entry.Base, b.guard)
	alarm := b.detector.Observe(o)
	jumped := b.guard.Jumped()
	if charged != o && b.guard.Shifts() > shifts {
		jumped = true // the guard begins anew with its latest calls, which were compared with what is usual no more
	}
	if !alarm.Raised && (jumped || b.guard.Reverts() > reverts && b.detector.Stat().Signal >= revertAlarm) {
		alarm = b.detector.Trip()
	}
	return alarm
}

// firstRun reports that one of our own kernels runs for the first time, so that the call says nothing of what it costs: the GPU
// fetches its code meanwhile (11.5 us where the next calls take 3.1, on H200). Once is enough to be warm.
func (b *bucket) firstRun(a actions.Action) bool {
	if !a.Ours() || slices.Contains(b.warm, a) {
		return false
	}
	b.warm = append(b.warm, a)
	return true
}

// pass takes in that a call was made, whatever it is charged.
func (b *bucket) pass(o *state.Observation) {
	b.silence.hears(o.Action)
	b.passed += 1 + int(o.Unseen)
	b.counts(o, false)
}

// counts takes in that a call was told of; slow: it has no times, and those who count by times hear of it with the next one.
func (b *bucket) counts(o *state.Observation, slow bool) {
	b.calls++
	b.contests(o.Action, slow)
	if b.rested++; len(b.entry.Trials) > 0 || b.rested >= restCalls || b.guard.Urgent() {
		b.fresh = true
	}
	b.follow(o)
}

// unseen takes in how many calls were made up to one that is observed now, and gives how many nobody measured since the
// one before it.
func (b *bucket) unseen(made uint16) uint16 {
	n := made - b.made
	if b.counted && (n == 0 || n > math.MaxInt16) {
		return 0 // heard of late
	}
	first := !b.counted
	b.made, b.counted = made, true
	if first {
		return 0 // who knows what was in force then
	}
	return n - 1
}

// follow notes which of the entry's trials have run. Trials run in order; one that is skipped here had a lost sample, and
// a call of the base means that all have run. Calls that were made before the entry came into force say nothing, though
// they be of the same actions: programs run ahead of their GPU by hundreds of calls.
func (b *bucket) follow(o *state.Observation) {
	if !b.published || int32(o.Plan-b.since) < 0 {
		return
	}
	b.sinceTrial++
	left := b.entry.Trials[b.nextTrial:]
	if o.EntryCall > 0 { // the ranks' own count
		b.nextTrial = max(b.nextTrial, min(int(o.EntryCall)-b.entry.Skip, len(b.entry.Trials)))
	} else if i := slices.Index(left, o.Action); i >= 0 {
		b.nextTrial += i + 1
	} else if o.Action == b.entry.Base || b.sinceTrial >= pickupCalls {
		b.nextTrial = len(b.entry.Trials)
	}
}

// shift says that the fabric changed: measurements so far describe another condition. What was assumed stays where nothing is
// explored, for nobody would find anything better than NCCL's default then.
func (b *bucket) shift(d agents.Diagnosis, explore bool) {
	b.guard.Shift(d)
	if explore {
		b.assumed = actions.Default
	}
	b.nextTrial = len(b.entry.Trials) // what is under way was proposed for another condition
	b.fresh = true
}

// propose asks the learner what to do next, unless trials are still under way. It reports whether the entry changed. Where
// trials are timed one by one (single) the last is the base, which is to be compared with: it says that all have run, too.
func (b *bucket) propose(nowNs state.Ns, explore, single bool, maxTrials int, nextID *uint32) bool {
	waiting := b.nextTrial < len(b.entry.Trials)
	if b.differ || !b.fresh || waiting && explore && !b.guard.Urgent() {
		return false
	}
	b.fresh, b.rested = false, 0
	warm := 0
	if single {
		maxTrials--
		if slices.ContainsFunc(b.set, onGIN) {
			warm = warmUps
		}
	}
	room := maxTrials - warm
	contested := explore && b.contest.on && room > 2*contestPairs
	if contested {
		room -= 2 * contestPairs
	}
	base, trials := b.guard.Propose(room)
	switch {
	case !explore:
		base, trials = b.assumed, nil
	case base != b.assumed: // the guard had it in force until now (Keep)
		b.assumed = actions.Default
	}
	if explore && len(trials) < room {
		if a, ok := b.silence.again(b.allowed, b.calls, b.guard.Withholds); ok {
			trials = append(trials, a)
		}
	}
	if contested && base == b.entry.Base {
		trials = append(slices.Repeat([]actions.Action{actions.Default, base}, contestPairs), trials...)
	}
	if explore && len(trials) == 0 {
		trials = slices.Repeat([]actions.Action{base}, b.look.calls) // a look that is due
	}
	b.look.calls = 0
	if base == b.entry.Base && len(trials) == 0 && len(b.entry.Trials) == 0 {
		return false
	}
	b.contest.apart()
	if base != b.entry.Base {
		b.contest = contest{}
		b.sinceNs = nowNs
		if base == b.assumed && b.entry.ID == 0 {
			b.sinceNs = b.storedNs // from before this bucket was made
		}
	}
	if !waiting && b.published {
		b.silence.over(&b.entry, b.calls)
	}
	b.silence.begins()
	*nextID++
	b.entry = Entry{Bucket: b.Bucket, ID: *nextID, Base: base}
	b.warmAt = -1
	if len(trials) > 0 {
		if warm > 0 {
			var at int
			if trials, at = warmUp(base, trials); at >= 0 {
				b.warmAt = at
			}
		}
		b.entry.Trials = slices.Clone(trials)
		if single {
			b.entry.Trials, b.entry.Skip = append(b.entry.Trials, base), b.skip()
		}
	}
	b.nextTrial, b.sinceTrial, b.passed, b.published = 0, 0, 0, false
	return true
}

// learned is what is worth keeping of a bucket whose choice is base; false: nothing can be said. The Key has the bucket
// alone.
func (b *bucket) learned(base actions.Action) (l Learned, ok bool) {
	evidence := b.guard.Known()
	if len(evidence) == 0 || evidence[0].Action != actions.Default {
		return l, false // without the default's cost nothing can be said of a choice
	}
	if len(b.set) < 2 || b.keeps {
		return l, false // nothing could be chosen: what the store knows of this bucket from other runs stays
	}
	l = Learned{Key: Key{Bucket: b.Bucket}, Action: base, Calls: b.calls, SinceNs: b.sinceNs, Diagnosis: b.diagnosis, DiagnosisNs: b.diagNs,
		Evidence: map[actions.Action]Estimate{}}
	for _, e := range evidence {
		l.Evidence[e.Action] = estimateOf(e)
	}
	l.CostNs, l.Default = l.Evidence[l.Action].MeanNs, l.Evidence[actions.Default].MeanNs
	return l, l.CostNs > 0
}

func (b *bucket) view() BucketView {
	v := BucketView{Bucket: b.Bucket, Choice: b.entry.Base, SinceNs: b.sinceNs, Calls: b.calls, Ledger: b.ledger, Diagnosis: b.diagnosis,
		DiagnosisNs: b.diagNs, DiagnosedBefore: b.diagBefore, MeasuredNs: b.firstNs, Exploring: b.exploring(), SpeedUp: 1, SpeedUpLow: 1, SpeedUpHigh: 1}
	for _, e := range b.guard.Estimates(nil) {
		v.Choices = append(v.Choices, ActionView{e.Action, estimateOf(e)})
	}
	if b.entry.Base == b.assumed && b.assumed != actions.Default && !b.guard.Judged(b.assumed) {
		v.Stored = b.stored
	} else if b.guard.Base() == b.entry.Base {
		v.SpeedUp, v.SpeedUpLow, v.SpeedUpHigh = b.guard.SpeedUp()
	}
	if relative, sd, ok := b.guard.Expects(v.Choice); ok {
		v.Expected, v.ExpectedSD = math.Exp(-relative), sd
	}
	stat := b.detector.Stat()
	v.CusumCounter, v.CusumSignal = stat.Counter, stat.Signal
	if b.differ {
		v.Note = "ranks differ in what NCCL allows: passes through"
	}
	return v
}

// estimateOf makes an estimate for people and for the store: by logarithms, so that one delayed call moves neither centre nor spread by much.
func estimateOf(e agents.Estimate) Estimate {
	return Estimate{N: e.N, MeanNs: math.Exp(e.LogNs), VarLog: e.VarLog}
}
