package tuner

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

const (
	maxLinks = 4096 // of a communicator: 8 ranks have 56 ways, of up to 4 contexts each

	// sayAgainNs is how long a communicator's links that change alike are one finding: what changes for one link most
	// often does for all of a NIC or a network.
	sayAgainNs = state.Ns(30e9)
)

// TripTotals counts what puts over GIN told. They only grow. Their JSON keys are an interface: add, never rename.
type TripTotals struct {
	Samples    uint64 `json:"samples"`    // taken in
	Joined     uint64 `json:"joined"`     // puts that both ranks of a pair told of
	Incomplete uint64 `json:"incomplete"` // given up because the other rank told nothing
	Rejected   uint64 `json:"rejected"`   // told twice, by ranks that are not there, or by ranks that differ
	Unknown    uint64 `json:"unknown"`    // of communicators that are not known
	Elsewhere  uint64 `json:"elsewhere"`  // of Samples, those of ranks on other hosts
	Unkept     uint64 `json:"unkept"`     // joined ones of more links than are kept
	Alarms     uint64 `json:"alarms"`     // of the detector
	Changes    uint64 `json:"changes"`    // that the diagnosis has a name for

	SignalNs  uint64 `json:"-"` // of the joined, there and back
	CounterNs uint64 `json:"-"` // of those that put something
	Counters  uint64 `json:"-"` // how many these are
}

// LinkView is what people see of the way from one rank to another over one context of GIN.
type LinkView struct {
	Comm            CommID
	Shape           state.Shape
	Rank, Peer      int32
	Context         uint8
	Backend         actions.Backend
	Trips           uint64   // seen: about one call in 256 is timed
	FirstNs, LastNs state.Ns // when ranks told of them
	Sizes           []LinkSize
	Verdict         agents.Verdict // on it; New has no meaning
	ChangedNs       state.Ns       // when the verdict came to be what it is
	Saturated       []Saturation   // by size
}

// LinkSize is what puts of about one size take on a link, since the last change.
type LinkSize struct {
	Log2Bytes       uint8
	Trips           uint64
	Signal, Counter ReplayCost // Signal: there and back, of the pair's later rank; Counter is zero where nothing was put
}

// trips is what one communicator's puts over GIN take.
type trips struct {
	joiner tripJoiner
	closer closer
	noise  agents.FabricNoise // of its own, as that of replays
	links  map[linkKey]*link
	said   map[agents.Diagnosis]state.Ns // when a diagnosis was last told of
	held   []joinedTrip                  // since the last Tick, at most tripWindow and one
	rng    *rand.Rand
}

// linkKey is a way: from a rank to a peer, over a context of a backend.
type linkKey struct {
	rank, peer int32
	context    uint8
	backend    actions.Backend
}

// link watches one way as a communicator's calls are watched: a detector for each size, and one diagnosis over them.
type link struct {
	linkKey
	seen            uint64
	firstNs, lastNs state.Ns
	sizes           map[state.Bucket]*linkSize
	together        *agents.Together
	diagnoser       *agents.Diagnoser
	verdict         agents.Verdict
	changedNs       state.Ns
	loads           map[loadKey]*load
	saturated       map[uint64]Saturation // by bytes of a put
	beside          []*link               // between the same ranks
	joined          bool                  // since its last put, a change of its began by what another one tells
}

type linkSize struct {
	detector *agents.Detector
	level    costLevel
}

func (l *link) size(b state.Bucket, d agents.Design, noise *agents.FabricNoise) *linkSize {
	s := l.sizes[b]
	if s == nil {
		s = &linkSize{detector: agents.NewPutDetector(d)}
		s.detector.Share(noise)
		l.sizes[b] = s
	}
	return s
}

// observe takes in one put, and reports what it was taken for and whether the diagnosis is a new one.
func (l *link) observe(nowNs state.Ns, t *joinedTrip, d agents.Design, in *trips) (put WatchedPut, changed bool) {
	if l.seen++; l.seen == 1 {
		l.firstNs = nowNs
	}
	l.lastNs = nowNs
	// AllToAll stands for puts: no other collective's bytes are those that go from one rank to another. A signal alone has none.
	b, _ := state.BucketOf(actions.AllToAll, max(t.bytes, 1))
	s := l.size(b, d, &in.noise)
	o := state.Observation{AtNs: nowNs, Action: t.action, Bytes: t.bytes, SignalNs: t.signalNs, CounterNs: t.counterNs}
	a := l.together.Observe(s.detector, s.detector.Observe(o), l.diagnoser.Quiet())
	v := l.diagnoser.Observe(b, s.detector, o, a)
	if a.Raised || v.Joined {
		l.beginAnew()
	}
	s.level.add(replayCost{o.SignalNs, o.CounterNs}, in.rng)
	if l.wanting(s.detector) {
		in.closer.wantNs = nowNs
	}
	if changed = v.Diagnosis != l.verdict.Diagnosis; changed {
		l.changedNs = nowNs
	}
	l.verdict = v
	put = WatchedPut{Rank: l.rank, Peer: l.peer, Context: l.context, Number: t.number, Bucket: b, Observation: o, Alarm: a.Raised || v.Joined || l.joined, Diagnosis: v.Diagnosis}
	l.joined = false
	return put, changed
}

// beginAnew forgets what puts took before a change.
func (l *link) beginAnew() {
	for _, s := range l.sizes {
		s.level = costLevel{}
	}
	clear(l.loads)
	clear(l.saturated)
}

// trip takes in what one rank tells of one put. It is no call: choices, learners and what is known of calls stay as they are.
func (c *Core) trip(nowNs state.Ns, e *Trip) {
	t := &c.totals.Trips
	t.Samples++
	m := c.comms[e.Comm]
	if m == nil {
		t.Unknown++
		return
	}
	if m.trips == nil {
		m.trips = &trips{joiner: tripJoiner{ranks: int32(m.Shape.Ranks)}, links: map[linkKey]*link{}, said: map[agents.Diagnosis]state.Ns{},
			rng: rand.New(rand.NewPCG(c.cfg.Seed, uint64(m.Comm)))}
	}
	if e.Rank >= 0 && e.Rank < int32(m.Shape.Ranks) && !tells(m.heard(), e.Rank) {
		t.Elsewhere++
	}
	m.trips.closer.heard(e)
	m.trips.held = append(m.trips.held, m.trips.joiner.add(t, e)...)
	if len(m.trips.held) >= tripWindow {
		c.followHeld(nowNs, m)
	}
}

// follow takes in one way of a put that both ranks told of.
func (c *Core) follow(nowNs state.Ns, m *comm, way *joinedTrip) {
	t := &c.totals.Trips
	t.Joined++
	t.SignalNs += uint64(way.signalNs)
	if way.counterNs > 0 {
		t.Counters++
		t.CounterNs += uint64(way.counterNs)
	}
	l := m.trips.links[way.linkKey]
	if l == nil && len(m.trips.links) < maxLinks {
		l = &link{linkKey: way.linkKey, sizes: map[state.Bucket]*linkSize{}, together: agents.NewTogether(c.design), diagnoser: agents.NewDiagnoser(), verdict: agents.Verdict{Rank: -1, Signal: 1},
			loads: map[loadKey]*load{}, saturated: map[uint64]Saturation{}}
		for _, other := range slices.SortedFunc(maps.Values(m.trips.links), byWay) { // the same puts give the same verdicts
			if other.backend == l.backend && min(other.rank, other.peer) == min(l.rank, l.peer) && max(other.rank, other.peer) == max(l.rank, l.peer) {
				l.diagnoser.Beside(other.diagnoser)
				l.beside, other.beside = append(l.beside, other), append(other.beside, l)
			}
		}
		m.trips.links[way.linkKey] = l
	}
	if l == nil {
		t.Unkept++
		return
	}
	put, changed := l.observe(nowNs, way, c.design, m.trips)
	if put.Alarm {
		t.Alarms++
	}
	if c.cfg.Trace {
		put.Comm = m.Comm
		c.out.Puts = append(c.out.Puts, put)
	}
	if s, found := l.weigh(way); found {
		c.tellLink(nowNs, m, l, way.bytes, agents.DiagnosisSaturated, s.String())
	}
	if !changed {
		return
	}
	c.changed(nowNs, m, l, way.bytes)
	for _, other := range l.beside {
		if v := other.diagnoser.Again(); v.New {
			other.verdict, other.changedNs = v, nowNs
			if v.Joined {
				other.beginAnew()
				other.joined = true
			}
			c.changed(nowNs, m, other, way.bytes)
		}
	}
}

func byWay(a, b *link) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.peer, b.peer), cmp.Compare(a.context, b.context), cmp.Compare(a.backend, b.backend))
}

// changed says what a way is now taken for.
func (c *Core) changed(nowNs state.Ns, m *comm, l *link, bytes uint64) {
	if l.verdict.Diagnosis == agents.DiagnosisNone {
		return
	}
	c.totals.Trips.Changes++
	if l.verdict.Diagnosis == agents.DiagnosisRecovered {
		m.stir(nil, actions.Action{Path: actions.PathGIN, Backend: l.backend})
	}
	c.tellLink(nowNs, m, l, bytes, l.verdict.Diagnosis, l.verdict.Detail())
}

// tellLink makes it a finding of the communicator, unless a link of it has just said the same.
func (c *Core) tellLink(nowNs state.Ns, m *comm, l *link, bytes uint64, d agents.Diagnosis, text string) {
	if at, said := m.trips.said[d]; said && nowNs-at < sayAgainNs {
		return
	}
	m.trips.said[d] = nowNs
	b, _ := state.BucketOf(actions.AllToAll, max(bytes, 1))
	c.find(nowNs, m, b, d, fmt.Sprintf("puts of rank %d to rank %d over context %d of GIN (%s): %s; further links of this communicator that say so are not told of for %d s",
		l.rank, l.peer, l.context, l.backend, text, sayAgainNs/1e9))
}

// LinksOf shows the ways of one communicator over GIN, by rank, peer, context and backend; nil when it is not known.
func (c *Core) LinksOf(id CommID) (all []LinkView) {
	m := c.comms[id]
	if m == nil || m.trips == nil {
		return nil
	}
	for _, l := range m.trips.links {
		v := LinkView{Comm: id, Shape: m.Shape, Rank: l.rank, Peer: l.peer, Context: l.context, Backend: l.backend, Trips: l.seen,
			FirstNs: l.firstNs, LastNs: l.lastNs, Verdict: l.verdict, ChangedNs: l.changedNs}
		for b, s := range l.sizes {
			if s.level.n == 0 {
				continue
			}
			size := LinkSize{Log2Bytes: b.Log2Bytes, Trips: s.level.n}
			size.Signal, size.Counter = s.level.costs()
			v.Sizes = append(v.Sizes, size)
		}
		for _, s := range l.saturated {
			v.Saturated = append(v.Saturated, s)
		}
		slices.SortFunc(v.Saturated, func(a, b Saturation) int { return cmp.Compare(a.Bytes, b.Bytes) })
		slices.SortFunc(v.Sizes, func(a, b LinkSize) int { return cmp.Compare(a.Log2Bytes, b.Log2Bytes) })
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b LinkView) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.Context, b.Context), cmp.Compare(a.Backend, b.Backend))
	})
	return all
}

// LinkCounts is all links in short.
type LinkCounts struct {
	Trips   uint64 // seen
	Links   int
	Changed int // of which a diagnosis is in force
}

// CountLinks counts what Links shows, and computes none of it: whoever asks for the state of the daemon asks for this.
func (c *Core) CountLinks() (n LinkCounts) {
	for _, m := range c.comms {
		if m.trips == nil {
			continue
		}
		n.Links += len(m.trips.links)
		for _, l := range m.trips.links {
			n.Trips += l.seen
			if l.verdict.Diagnosis != agents.DiagnosisNone {
				n.Changed++
			}
		}
	}
	return n
}

// Links shows those of all communicators, in the order of joining.
func (c *Core) Links() (all []LinkView) {
	for _, id := range c.order {
		all = append(all, c.LinksOf(id)...)
	}
	return all
}
