package tuner

import (
	"cmp"
	"slices"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

// comm is one communicator whose ranks have all joined.
type comm struct {
	CommJoined
	joiner    joiner
	diagnoser *agents.Diagnoser
	buckets   [actions.NumCollectives][state.NumBuckets]*bucket
	order     []*bucket // those that are, by collective and size
	peers     *agents.Peers
	noise     agents.FabricNoise // of all buckets' detectors
	kernels   bool               // every rank can run our own
	early     []Entry            // stored choices of buckets whose marks nobody knows yet, the greatest gain first
	dirty     bool               // a plan must be published
	touched   bool               // something was observed since the last tick
	tickedNs  state.Ns           // when buckets were last asked what they want
	observed  uint64             // group calls
	watch     watch
	agreed    uint32    // version of the plan in force, where several hosts agree on it
	parted    bool      // and have lost each other
	newest    uint64    // the greatest sequence number observed
	every     int       // epochs between sampled ones, of the last plan
	exposure  *exposure // nil: calls are charged what they take
	audit     *audit    // nil: steps are not guarded
	computes  computes
	connected connected
	tried     *bucket  // the last one that got trials
	replays   *replays // nil: no graph has told of one
	// misnamed are names on registered memory that have not brought about what they say.
	misnamed map[state.Bucket][]actions.Action
	trips    *trips // nil: nothing has been told of puts over GIN
	// registered are collectives on registered memory that all ranks have called.
	registered [actions.NumCollectives]bool
	// onDevice has the sizes, by their bits, at which LL is NCCL's device kernel.
	onDevice [actions.NumCollectives]uint64
}

func newComm(e CommJoined, cfg Config) *comm {
	m := &comm{CommJoined: e, joiner: joiner{heard: e.heard(), far: farOf(allRanks(e.Shape.Ranks) &^ e.heard())}, diagnoser: agents.NewDiagnoser(), peers: agents.NewPeers(), dirty: true}
	switch {
	case cfg.Reward == RewardExposed:
		m.exposure = &exposure{}
	case cfg.StepGuard && !m.several(): // over several hosts nobody knows when a block's plan comes into force
		m.audit = &audit{seed: cfg.Seed ^ uint64(m.Comm)}
	}
	return m
}

// published says that what the last plan has comes into force with this version, where it was not in an earlier one.
func (m *comm) published(version uint32, nowNs state.Ns) {
	m.audit.published(version)
	m.eachBucket(func(b *bucket) {
		if !b.published {
			b.published, b.since = true, version
			b.look.heardAt, b.look.heardNs = m.newest, nowNs
		}
	})
}

// passed takes in that a call was observed and gives how many were made since the newest one before it, itself included.
func (m *comm) passed(seq uint64) (calls uint64) {
	if m.observed++; seq > m.newest {
		calls = seq - m.newest
		m.newest = seq
	}
	return calls
}

func (m *comm) eachBucket(f func(*bucket)) {
	for _, b := range m.order {
		f(b)
	}
}

// put has b be its bucket.
func (m *comm) put(b *bucket) {
	m.audit.disturbed(m.newest)
	if old := m.buckets[b.Collective][b.Log2Bytes]; old != nil && old == m.tried {
		m.tried = b // and nobody waits for what the other one had under way
	}
	m.buckets[b.Collective][b.Log2Bytes] = b
	m.order = m.order[:0]
	for c := range m.buckets {
		for _, b := range m.buckets[c] {
			if b != nil {
				m.order = append(m.order, b)
			}
		}
	}
}

// fixed says that a collective keeps NCCL's own choice, since it adds up and the user wants plain NCCL's sums.
func (m *comm) fixed(c actions.Collective) bool {
	return m.FixedNumerics && actions.ReductionOrderMatters(c)
}

// llOnDevice says that LL is NCCL's device kernel for calls of the bucket.
func (m *comm) llOnDevice(b state.Bucket) bool { return m.onDevice[b.Collective]>>b.Log2Bytes&1 != 0 }

// untoldBroadcast is the first NCCL whose profiler tells nothing of a Broadcast: it becomes a task of its own and from that a collective's again,
// without the mask that says whom to tell (ncclPrepareTasks, src/enqueue.cc, 2.29.2 to 2.30.7; 2.32.3 tells nothing either).
const untoldBroadcast = 22902

// untold says that NCCL's profiler has no event of a call of the bucket for which NCCL was asked for a choice.
func (m *comm) untold(b state.Bucket, asked actions.Action) bool {
	if b.Collective == actions.Broadcast {
		return m.NCCLVersion >= untoldBroadcast
	}
	return m.llOnDevice(b) && sameIn([]actions.Action{deviceLL}, asked) == deviceLL
}

// views appends what people see of every bucket, in the order of collective and size.
func (m *comm) views(all []BucketView) []BucketView {
	m.eachBucket(func(b *bucket) {
		v := b.view()
		v.Comm, v.Shape, v.Silent, v.Refused = m.Comm, m.Shape, b.silence.of(b.allowed), m.refused(b.Bucket)
		v.Fixed = m.fixed(b.Collective)
		v.DeviceLL = sameIn([]actions.Action{deviceLL}, v.Choice) == deviceLL && m.llOnDevice(b.Bucket)
		if m.exposure != nil {
			v.Reward = RewardExposed
		}
		if most := m.mostCTAs(b.Bucket); most < slices.Max(ctaChoices) && slices.ContainsFunc(b.set, func(a actions.Action) bool { return a.Path == actions.PathLSA || a.Path == actions.PathGIN }) {
			v.MostCTAs = int(most)
			switch {
			case most < m.mostPlaces():
				v.Computes = true
			case most < uint8(m.MaxCTAs) || m.MaxCTAs == 0:
				v.Beside = m.Outstanding - 1
			}
		}
		m.audit.shows(&v)
		across := m.acrossNote(b.Bucket)
		switch {
		case across != "":
			v.Note = across
		case v.Note != "":
		case v.Fixed:
			v.Note = "fixed numerics: " + b.Collective.String() + " adds up, so it keeps NCCL's default: no other algorithm, protocol or number of channels and none of our kernels, so that every sum is plain NCCL's"
		case m.audit.vetoes():
			v.Note = m.audit.told.String()
		case !m.Explore:
			v.Note = "not explored: a rank has no profiler plugin or its calls are not timed (dynamiccld status), or exploration is off"
		case m.exposure != nil && m.exposure.rhythm.period == 0:
			v.Note = "no order in which calls come back is known (yet): what a call adds to its step cannot be told, and nothing is tried"
		}
		all = append(all, v)
	})
	return all
}

// prior is what the store knows of a bucket; nil when it knows nothing.
func (m *comm) prior(b state.Bucket) *Learned {
	for i := range m.Prior {
		if m.Prior[i].Key.Bucket == b {
			return &m.Prior[i]
		}
	}
	return nil
}

// knows has l stand for what the store knows of its bucket.
func (m *comm) knows(l Learned) {
	l = l.Refusing(m.refused(l.Key.Bucket)...)
	m.Prior = append(slices.DeleteFunc(slices.Clone(m.Prior), func(p Learned) bool { return p.Key.Bucket == l.Key.Bucket }), l)
}

// turns are the buckets in the order in which they may propose: where calls are charged what they add to a step, the one
// that tried something last comes last.
func (m *comm) turns() []*bucket {
	if i := slices.Index(m.order, m.tried); i >= 0 && m.exposure != nil {
		return slices.Concat(m.order[i+1:], m.order[:i+1])
	}
	return m.order
}

// mayTry reports whether a bucket may try something now. In a step one call's delay moves the calls after it, so there only
// one bucket tries at a time, and none before what calls add to their step can be told.
func (m *comm) mayTry(b *bucket) bool {
	if m.exposure == nil {
		return true
	}
	busy := m.tried != nil && m.tried != b && m.trying(m.tried)
	return !busy && m.exposure.rhythm.period > 0
}

// stir has buckets ask for what was better before: the way that an action takes has recovered in another one, or on GIN (but is nil).
func (m *comm) stir(but *bucket, way actions.Action) {
	m.eachBucket(func(b *bucket) {
		if b != but {
			b.guard.Stir(way)
			b.fresh = true
		}
	})
}

// trying reports whether trials of a bucket are under way, or may still be.
func (m *comm) trying(b *bucket) bool {
	return !b.differ && b.nextTrial < len(b.entry.Trials) && m.observed-b.seenAt < forgotten
}

// single says that ranks time trials one by one, so that the calls between them need not be watched. What a call adds to its
// step shows only beside its neighbours.
func (m *comm) single() bool { return m.EventTimed && m.exposure == nil }

// forgotten is how many calls of a communicator may pass without one of a bucket, before the bucket's trials are no reason
// any more to sample every call.
const forgotten = 1024

// waits says that nothing may be tried for now, since too much was watched of late. Where --sample-every is set, what watching
// costs is the user's choice.
func (m *comm) waits(cfg Config) bool { return m.watch.waits && cfg.SampleEvery == 0 }

// sampleEvery is dense while anything is being explored, where trials are not timed by themselves.
func (m *comm) sampleEvery(cfg Config) int {
	exploring := false
	m.eachBucket(func(b *bucket) {
		exploring = exploring || !m.single() && m.trying(b)
	})
	switch {
	case exploring, (m.exposure != nil && m.exposure.searching() || m.seeks()) && !m.waits(cfg):
		return 1
	case m.audit.watches():
		return min(m.audit.every, m.settledEvery(cfg))
	}
	return m.settledEvery(cfg)
}

// settledEvery is how often a communicator is sampled of which nothing is asked.
func (m *comm) settledEvery(cfg Config) int {
	switch {
	case cfg.SampleEvery > 0:
		return cfg.SampleEvery
	case !m.Explore && m.observed == 0: // perhaps none of its calls can be timed
		return maxSampleEvery
	}
	return m.watch.settle(cfg.WatchShare)
}

// plan gathers what every bucket wants.
func (m *comm) plan() Plan {
	p := Plan{Comm: m.Comm, SampleEvery: m.every, Closely: m.trips != nil && m.trips.closer.on}
	if p.DefaultCalls, p.DefaultGraphs = m.audit.plain(), m.audit.vetoes(); p.DefaultCalls && p.DefaultGraphs {
		return p
	}
	var all []*bucket
	m.eachBucket(func(b *bucket) {
		if !b.differ {
			all = append(all, b)
		}
	})
	if len(all) > MaxEntries {
		slices.SortStableFunc(all, func(a, b *bucket) int { return cmp.Compare(b.calls, a.calls) }) // the rarest are dropped
	}
	var room planRoom
	put := func(e Entry) bool {
		taken := (e.Base != actions.Default || len(e.Trials) > 0) && room.take(&e)
		if taken {
			p.Entries = append(p.Entries, e)
		}
		return taken
	}
	settled := func(e Entry) Entry { return Entry{Bucket: e.Bucket, ID: e.ID, Base: e.Base} }
	for _, b := range all { // what is chosen is in force also where there is no room for trials
		if e := settled(b.entry); len(b.entry.Trials) == 0 {
			put(e)
		} else if e.Base != actions.Default {
			room.take(&e)
		}
	}
	for _, e := range m.early {
		if m.buckets[e.Bucket.Collective][e.Bucket.Log2Bytes] == nil {
			put(e)
		}
	}
	for _, b := range all {
		if len(b.entry.Trials) > 0 && !put(b.entry) { // what is not in a plan is no trial of which nothing was heard
			b.entry, b.nextTrial = settled(b.entry), 0
			put(b.entry)
		}
	}
	return p
}

// MaxEntries is how many entries one plan can carry (DYN_NUM_ENTRIES less the unused one): one for each bucket that tries something,
// and one for all others of the same base.
const MaxEntries = 63

// planRoom is the room that a plan has left: entries that try nothing and have the same base are one there.
type planRoom struct {
	taken int
	bases []actions.Action
}

func (r *planRoom) take(e *Entry) bool {
	settled := len(e.Trials) == 0
	switch {
	case settled && slices.Contains(r.bases, e.Base):
		return true
	case r.taken == MaxEntries:
		return false
	case settled:
		r.bases = append(r.bases, e.Base)
	}
	r.taken++
	return true
}

// Buckets shows every bucket of every communicator, in the order of joining, collective and size.
func (c *Core) Buckets() []BucketView {
	var all []BucketView
	for _, id := range c.order {
		m := c.comms[id]
		all = m.views(all)
	}
	return all
}

// BucketsOf shows the buckets of one communicator; nil when it is not known.
func (c *Core) BucketsOf(id CommID) []BucketView {
	if m := c.comms[id]; m != nil {
		return m.views(nil)
	}
	return nil
}
