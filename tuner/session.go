package tuner

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

// ErrBadSession is returned for a session that cannot be made; the message names what is wrong and where.
var ErrBadSession = errors.New("bad session")

// SessionConfig is one communicator whose calls somebody else makes.
type SessionConfig struct {
	NewLearner agents.NewLearner  // required
	Guard      agents.GuardConfig // zero: the default one
	Design     agents.Design      // of the detectors; zero: of the default parameters, which takes milliseconds to compute
	Topology   state.Topology
	Buckets    []SessionBucket
	Seed       uint64
	Horizon    float64 // agents.Task
	Steady     bool    // conditions stay: calls that differ are noise, and nothing is learned anew
	Batch      int     // trials that a learner proposes at once; 0: 1, so that it knows every result before the next
}

// SessionBucket is one bucket of a session. Several may have the same Bucket: they are then tuned apart.
type SessionBucket struct {
	Bucket state.Bucket
	Bytes  uint64           // of its calls; 0: the bucket's smallest size
	Set    []actions.Action // Set[0] is NCCL's default; no action twice
}

// Session is a communicator driven from outside, one call at a time: Ask what a call should run, run it, Tell what it
// took. It is what a Core does for a communicator, with the detector, the diagnosis and the guard, but without ranks,
// epochs and plans. A Tell may be missing, late, or of another action than was asked. One goroutine at a time.
type Session struct {
	buckets []sessionBucket
	shape   state.Shape
	steady  bool
	batch   int
	calls   uint64 // told
	planID  uint32
}

type sessionBucket struct {
	bucket
	bytes     uint64
	diagnoser *agents.Diagnoser
	queue     []actions.Action // trials proposed and not asked yet
	asked     actions.Action   // by the last Ask
	trial     bool             // and whether it is one
}

// NewSession makes the learners of all buckets.
func NewSession(cfg SessionConfig) (*Session, error) {
	if cfg.NewLearner == nil {
		return nil, fmt.Errorf("no learner: %w", ErrBadSession)
	}
	if cfg.Batch < 0 || cfg.Batch > MaxTrials {
		return nil, fmt.Errorf("batches of %d trials, want at most %d: %w", cfg.Batch, MaxTrials, ErrBadSession)
	}
	if len(cfg.Buckets) == 0 {
		return nil, fmt.Errorf("no buckets: %w", ErrBadSession)
	}
	if cfg.Guard == (agents.GuardConfig{}) {
		cfg.Guard = agents.DefaultGuardConfig()
	}
	if cfg.Design == (agents.Design{}) {
		var err error
		if cfg.Design, err = agents.NewDesign(agents.DefaultParams()); err != nil {
			return nil, fmt.Errorf("detector: %w", err)
		}
	}
	s := &Session{shape: cfg.Topology.Shape, steady: cfg.Steady, batch: max(1, cfg.Batch), buckets: make([]sessionBucket, len(cfg.Buckets))}
	peers, diagnoser, noise := agents.NewPeers(), agents.NewDiagnoser(), &agents.FabricNoise{}
	taken := map[state.Bucket]bool{}
	for i, c := range cfg.Buckets {
		if err := c.check(); err != nil {
			return nil, fmt.Errorf("bucket %d of the list: %w", i, err)
		}
		b := &s.buckets[i]
		b.bytes, b.diagnoser = c.Bytes, diagnoser
		if b.bytes == 0 {
			b.bytes = 1 << c.Bucket.Log2Bytes
		}
		if taken[c.Bucket] { // a diagnoser keeps one detector a bucket
			b.diagnoser = agents.NewDiagnoser()
		}
		taken[c.Bucket] = true
		task := agents.Task{Set: slices.Clone(c.Set), Bucket: c.Bucket, Topology: cfg.Topology, Peers: peers, Horizon: cfg.Horizon,
			Rand: rand.New(rand.NewPCG(cfg.Seed, uint64(i)))}
		b.bucket = bucket{Bucket: c.Bucket, set: task.Set, detector: agents.NewDetector(cfg.Design), fresh: true, entry: Entry{Bucket: c.Bucket},
			guard: agents.NewGuard(cfg.NewLearner(task), task.Set, c.Bucket, nil, cfg.Guard)}
		b.detector.Share(noise)
	}
	return s, nil
}

func (b SessionBucket) check() error {
	switch {
	case b.Bucket.Collective >= actions.NumCollectives || b.Bucket.Log2Bytes >= state.NumBuckets:
		return fmt.Errorf("%s does not exist: %w", b.Bucket, ErrBadSession)
	case len(b.Set) == 0 || b.Set[0] != actions.Default:
		return fmt.Errorf("action 0 is not NCCL's default, which every other action must beat: %w", ErrBadSession)
	}
	at := make(map[actions.Action]int, len(b.Set))
	for i, a := range b.Set {
		if err := a.Check(); err != nil {
			return fmt.Errorf("action %d: %w: %w", i, ErrBadSession, err)
		}
		if first, twice := at[a]; twice {
			return fmt.Errorf("actions %d and %d are both %s: %w", first, i, a, ErrBadSession)
		}
		at[a] = i
	}
	return nil
}

// Ask says what the next call of bucket i should run, as an index of its action set: a trial where the learner wants one
// and the guard lets it, the choice in force otherwise. It does not allocate beyond what the learner does.
func (s *Session) Ask(i int) int {
	b := &s.buckets[i]
	if len(b.queue) == 0 || b.guard.Urgent() {
		base, trials := b.guard.Propose(s.batch)
		b.entry.Base, b.queue = base, append(b.queue[:0], trials...)
	}
	b.asked, b.trial = b.entry.Base, len(b.queue) > 0
	if b.trial {
		b.asked = b.queue[0]
		b.queue = append(b.queue[:0], b.queue[1:]...)
	}
	return slices.Index(b.set, b.asked)
}

// Plan is what bucket i should do until the next Plan that changes it: the next len(trials) calls run the trials, all
// later ones the base. It is the way of a daemon, whose choices take force late: proposals come in batches, and a new
// one only once the last one was seen to have run. The slice is valid until the next Plan of i.
func (s *Session) Plan(i int) (base actions.Action, trials []actions.Action, changed bool) {
	b := &s.buckets[i]
	changed = b.propose(0, true, false, MaxTrials, &s.planID)
	b.published = true // and no Tell has a version
	return b.entry.Base, b.entry.Trials, changed
}

// Tell says that a call of bucket i took these times; a counter of 0 was not measured. It gives what is thought of the
// communicator's condition now. An index out of range and times that no clock can mean are passed over.
func (s *Session) Tell(i, action int, counterNs, signalNs state.Ns) agents.Diagnosis {
	if i < 0 || i >= len(s.buckets) || action < 0 || action >= len(s.buckets[i].set) {
		return agents.DiagnosisNone
	}
	b := &s.buckets[i]
	s.calls++
	a := b.set[action]
	o := state.Observation{Seq: s.calls, Action: a, Ran: a, Bytes: b.bytes, CounterNs: counterNs, SignalNs: signalNs, FirstRank: -1}
	alarm := b.observe(o, o)
	verdict := b.diagnoser.Observe(b.Bucket, b.detector, o, alarm)
	if alarm.Raised && !s.steady {
		b.shift(verdict.Diagnosis, true)
		b.queue = b.queue[:0] // proposed for another condition
	}
	return verdict.Diagnosis
}

// Action gives an action of bucket i's set by its index.
func (s *Session) Action(i, action int) actions.Action { return s.buckets[i].set[action] }

// Trying says that the last Ask of bucket i was answered with a trial: its learner does not rest.
func (s *Session) Trying(i int) bool { return s.buckets[i].trial }

// Base is the choice in force of bucket i.
func (s *Session) Base(i int) actions.Action { return s.buckets[i].guard.Base() }

// Learned is what is worth keeping of bucket i with its choice in force; false: the default was not measured, or nothing
// can be chosen. Of the Key only shape and bucket are filled in.
func (s *Session) Learned(i int) (Learned, bool) {
	l, ok := s.buckets[i].learned(s.Base(i))
	l.Key.Shape = s.shape
	return l, ok
}

// Why explains the answer of the last Ask of bucket i.
func (s *Session) Why(i int) string {
	b := &s.buckets[i]
	seen := b.guard.Estimate(b.asked)
	switch {
	case b.trial && b.asked == actions.Default:
		return fmt.Sprintf("trial: NCCL's default, to compare with; %d calls of it so far in this condition", seen.N)
	case b.trial && seen.N == 0:
		return fmt.Sprintf("trial: %s was not measured yet in this condition", b.asked)
	case b.trial:
		return fmt.Sprintf("trial: %s took %.1f us in %d calls so far in this condition", b.asked, seen.MeanNs/1e3, seen.N)
	case b.asked == actions.Default && len(b.set) == 1:
		return "NCCL's default: there is nothing else"
	case b.asked == actions.Default:
		return "NCCL's default: nothing is measured better beyond doubt in this condition"
	}
	if !b.guard.Judged(b.asked) {
		return fmt.Sprintf("%s: the choice from before conditions changed, kept until it and NCCL's default have been measured again", b.asked)
	}
	ratio, low, high := b.guard.SpeedUp()
	return fmt.Sprintf("%s: %.2fx as fast as NCCL's default (95%% between %.2fx and %.2fx), %d calls in this condition", b.asked, ratio, low, high, seen.N)
}
