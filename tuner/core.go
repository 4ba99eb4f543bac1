package tuner

import (
	"cmp"
	"fmt"
	"slices"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

// MaxTrials is how many exploration calls one plan entry can carry (DYN_NUM_TRIALS of nccltuner/abi.h).
const MaxTrials = 12

// MaxSkip is how many calls may come before them (DYN_MAX_SKIP of nccltuner/abi.h).
const MaxSkip = 128

// DefaultWatchShare is what watching may add to the calls of a settled communicator. Half a percent is what may be measured.
const DefaultWatchShare = 0.004

// Config is fixed for the life of a Core but for what its setters change.
type Config struct {
	NewLearner    agents.NewLearner  // required
	Guard         agents.GuardConfig // zero: the default one
	Explore       bool               // false: stored choices only
	Observe       bool               // the learner chooses nothing: what others have chosen is not run, and stays as the store has it
	FixedNumerics bool               // collectives that add up keep NCCL's own choice, on every communicator
	// SampleEvery is the epochs between sampled epochs, trials apart, a power of two; 0: as many as keep the cost
	// of sampling under WatchShare of a call in the mean.
	SampleEvery int
	WatchShare  float64 // 0: DefaultWatchShare
	Trace       bool    // every watched call comes out
	Seed        uint64
	Reward      Reward // what calls are charged
	StepGuard   bool   // where that is what they take: choices that make steps longer go
	Machine     string // for Key
	GPUArch     string // for Key
}

// Core decides. One goroutine at a time may call it.
type Core struct {
	cfg       Config
	design    agents.Design // of every bucket's detector
	comms     map[CommID]*comm
	order     []CommID // joined order, so that outputs do not depend on map order
	gone      Totals   // of communicators that have left
	out       Output
	totals    Totals
	overruled []OverruledCall
	unknown   []UnknownCalls
}

// New makes a Core.
func New(cfg Config) (*Core, error) {
	if cfg.NewLearner == nil {
		return nil, fmt.Errorf("tuner config: NewLearner is missing")
	}
	if cfg.Guard == (agents.GuardConfig{}) {
		cfg.Guard = agents.DefaultGuardConfig()
	}
	if cfg.WatchShare == 0 {
		cfg.WatchShare = DefaultWatchShare
	}
	if cfg.WatchShare < 0 || cfg.WatchShare > 1 {
		return nil, fmt.Errorf("tuner config: WatchShare %g is no share from 0 to 1", cfg.WatchShare)
	}
	if cfg.SampleEvery < 0 || cfg.SampleEvery&(cfg.SampleEvery-1) != 0 {
		return nil, fmt.Errorf("tuner config: SampleEvery %d is not a power of two", cfg.SampleEvery)
	}
	design, err := agents.NewDesign(agents.DefaultParams())
	if err != nil {
		return nil, fmt.Errorf("tuner config: detector: %w", err)
	}
	return &Core{cfg: cfg, design: design, comms: map[CommID]*comm{}}, nil
}

// SetExplore switches exploration on or off for all communicators, from the next Tick. What is in force when it ends stays.
func (c *Core) SetExplore(on bool) {
	ends := c.cfg.Explore && !on
	c.cfg.Explore = on
	for _, id := range c.order {
		m := c.comms[id]
		m.dirty = true
		m.eachBucket(func(b *bucket) {
			b.fresh = true
			if ends && m.Explore {
				b.assumed = b.guard.Base()
			}
		})
	}
}

// SetGuard changes the guards of all buckets, those to come included. What exploration has spent stays spent.
func (c *Core) SetGuard(cfg agents.GuardConfig) {
	c.cfg.Guard = cfg
	for _, id := range c.order {
		c.comms[id].eachBucket(func(b *bucket) { b.guard.Reconfigure(cfg) })
	}
}

// SetSampleEvery changes how often settled communicators are sampled. every must be a power of two, or 0 as in Config.
func (c *Core) SetSampleEvery(every int) {
	c.cfg.SampleEvery = every
	for _, id := range c.order {
		c.comms[id].dirty = true
	}
}

// Step takes in one event. Plans come out of Tick only, so that one plan carries all that changed since the last one.
// Instants go into Learned, so where that is kept nowNs counts from 1970, and goes on evenly all the same.
func (c *Core) Step(nowNs state.Ns, e Event) Output {
	c.out = Output{Plans: c.out.Plans[:0], Learned: c.out.Learned[:0], Findings: c.out.Findings[:0], Alarms: c.out.Alarms[:0], Watched: c.out.Watched[:0], Puts: c.out.Puts[:0]}
	switch e := e.(type) {
	case *Sample:
		c.sample(nowNs, e)
	case *Replay:
		c.replay(nowNs, e)
	case *Trip:
		c.trip(nowNs, e)
	case CommJoined:
		c.joined(e)
	case CommLeft:
		c.left(nowNs, e)
	case KernelsOpen:
		c.kernelsOpen(e)
	case Outstanding:
		c.outstanding(e)
	case Marks:
		c.marks(nowNs, e)
	case Published:
		c.published(nowNs, e)
	case Agreed:
		c.agreed(e)
	case Parted:
		c.parted(e)
	case Advised:
		c.advised(e)
	case Tick:
		c.tick(nowNs)
	default:
		panic(fmt.Sprintf("tuner: unknown event %T", e))
	}
	return c.out
}

func (c *Core) joined(e CommJoined) {
	if _, known := c.comms[e.Comm]; known {
		return // a daemon that scans twice, not a new communicator
	}
	e.FixedNumerics = e.FixedNumerics || c.cfg.FixedNumerics
	m := newComm(e, c.cfg)
	m.early = c.early(m, func(b state.Bucket, a actions.Action) bool {
		return a.Path == actions.PathCollective && !b.Collective.Registered()
	})
	c.comms[e.Comm] = m
	c.order = append(c.order, e.Comm)
}

func (c *Core) left(nowNs state.Ns, e CommLeft) {
	m := c.comms[e.Comm]
	if m == nil {
		return
	}
	c.followHeld(nowNs, m)
	m.eachBucket(func(b *bucket) { c.learned(m, b) })
	m.joiner.restart() // nobody tells of its open calls any more
	c.gone.addJoiner(&m.joiner)
	delete(c.comms, e.Comm)
	c.order = slices.DeleteFunc(c.order, func(id CommID) bool { return id == e.Comm })
}

func (c *Core) marks(nowNs state.Ns, e Marks) {
	m := c.comms[e.Comm]
	if m == nil || e.Bucket.Collective >= actions.NumCollectives || e.Bucket.Log2Bytes >= state.NumBuckets {
		c.totals.Unknown++
		return
	}
	if !e.Differ {
		c.onRegistered(m, e.Bucket.Collective)
	}
	if e.Set&MarkDeviceLL != 0 && !e.Bucket.Collective.Registered() {
		m.onDevice[e.Bucket.Collective] |= 1 << e.Bucket.Log2Bytes
	}
	old := m.buckets[e.Bucket.Collective][e.Bucket.Log2Bytes]
	set := Choices(e.Bucket, e.Set, m.channels(e.Bucket.Collective), m.Shape, m.EventTimed)
	if m.fixed(e.Bucket.Collective) {
		set = set[:1] // NCCL's default
	}
	if m.several() {
		set = acrossHosts(set, e.Bucket.Collective)
	}
	set = setWithin(set, m.mostCTAs(e.Bucket), hasRails(e.Bucket, m.Shape))
	switch {
	case old != nil && old.differ == e.Differ && slices.Equal(old.allowed, set):
		return
	case e.Differ && (old == nil || !old.differ):
		c.find(nowNs, m, e.Bucket, agents.DiagnosisNone, "ranks differ in what NCCL allows: this bucket passes through")
	}
	if old != nil && !old.differ && !e.Differ {
		m.put(c.refit(m, old, set)) // a rank has learned that it can do more, or NCCL has refused something
		return
	}
	m.put(c.newBucket(m, e.Bucket, set, e.Differ))
}

func (c *Core) published(nowNs state.Ns, e Published) {
	if m := c.comms[e.Comm]; m != nil {
		m.published(uint32(e.Version), nowNs)
	}
}

// advised lets what a person says count as if the store had known it: buckets concerned start anew from it.
func (c *Core) advised(e Advised) {
	m := c.comms[e.Comm]
	if m == nil {
		c.totals.Unknown++
		return
	}
	m.audit.advised(m.newest)
	for _, l := range e.Prior {
		b := l.Key.Bucket
		if b.Collective >= actions.NumCollectives || b.Log2Bytes >= state.NumBuckets {
			continue
		}
		if l.refusesOnly() {
			c.advisedAgainst(m, l)
			continue
		}
		if slices.Contains(m.refused(b), l.Action) {
			continue
		}
		m.knows(l)
		if old := m.buckets[b.Collective][b.Log2Bytes]; old != nil {
			m.put(c.newBucket(m, b, old.allowed, old.differ))
		}
	}
}

func (c *Core) tick(nowNs state.Ns) {
	for _, id := range c.order {
		m := c.comms[id]
		c.followHeld(nowNs, m)
		again, every := m.wantsCloser(nowNs), m.every
		idle := !m.touched && !m.dirty && nowNs-m.tickedNs < lookAfterNs // nothing was observed since the last tick, and nothing can be overdue
		if m.parted {
			continue
		}
		if !idle {
			c.auditOf(nowNs, m)
			c.ask(nowNs, m)
			every = m.sampleEvery(c.cfg)
		}
		if m.dirty || again || every != m.every {
			m.dirty, m.every = false, every
			c.totals.Plans++
			c.out.Plans = append(c.out.Plans, m.plan())
		}
	}
}

// learnEvery is how many calls of a bucket pass between two writes of what is known about it.
const learnEvery = 10_000

func (c *Core) learned(m *comm, b *bucket) {
	l, ok := b.learned(b.entry.Base)
	if b.differ || !ok || c.cfg.Reward == RewardExposed {
		return // what a call adds to a step is that program's and no other's
	}
	b.learnedAt, b.diagUntold = b.calls, false
	earlier := b.told
	if stored := m.prior(b.Bucket); earlier == nil && stored != nil && stored.Calls > 0 { // what a person advised was measured by nobody
		earlier = stored
	}
	l.Evidence = withEarlier(l, earlier) // a short program, or condition, measures little of what is known
	l = m.withWider(l, earlier)
	l = l.Refusing(m.refused(b.Bucket)...)
	b.told = &l
	l.Key = Key{Machine: cmp.Or(m.Machine, c.cfg.Machine), GPUArch: c.cfg.GPUArch, NCCLVersion: m.NCCLVersion, Shape: m.Shape, Bucket: b.Bucket}
	c.out.Learned = append(c.out.Learned, l)
}
