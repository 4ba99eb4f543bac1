package tuner

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"

	"pgregory.net/rapid"
)

var gin4 = actions.Action{Path: actions.PathGIN, Backend: actions.BackendGDAKI, Channels: 4}

// Whatever order ranks tell in, and whatever is lost or told twice: both ways of a put are joined once, when the second rank
// tells of it, at the shorter of both trips and each at its own counter, by each backend for itself. Oracle: all words of a pair in a map.
func TestTripJoinerAgainstOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranks := rapid.Int32Range(2, 5).Draw(t, "ranks")
		number := rapid.SampledFrom([]uint32{0, math.MaxUint32 - 500}).Draw(t, "first")
		var all []*Trip
		for range rapid.IntRange(1, 6).Draw(t, "calls") {
			number += rapid.Uint32Range(1, 200).Draw(t, "step")
			inGraph, both := rapid.Bool().Draw(t, "in a graph"), rapid.Bool().Draw(t, "by both backends")
			for way := range ranks * ranks * 4 {
				r, p, context, proxy := way/4/ranks, way/4%ranks, uint8(way/2%2), way%2 == 1
				e := &Trip{Number: number, InGraph: inGraph, Rank: r, Peer: p, Context: context, Action: gin4, Bytes: 64,
					SignalNs: state.Ns(rapid.Int64Range(1, 1000).Draw(t, "signal")), CounterNs: state.Ns(rapid.Int64Range(0, 1000).Draw(t, "counter"))}
				if proxy {
					e.Action.Backend = actions.BackendProxy
				}
				for fate := rapid.IntRange(0, 9).Draw(t, "fate"); r != p && (both || !proxy) && fate > 0; fate -= 9 {
					all = append(all, e)
				}
			}
		}
		j, totals := tripJoiner{ranks: ranks}, TripTotals{}
		first := map[tripKey]*Trip{}
		rejected := uint64(0)
		for _, e := range rapid.Permutation(all).Draw(t, "order") {
			key := tripKey{e.Number, e.InGraph, e.Context, e.Action.Backend, min(e.Rank, e.Peer), max(e.Rank, e.Peer)}
			other := first[key]
			both := j.add(&totals, e)
			switch {
			case other == nil:
				first[key] = e
				if both != nil {
					t.Fatalf("%+v is joined with nothing", e)
				}
			case other.Rank == e.Rank:
				rejected++
				if both != nil {
					t.Fatalf("%+v is joined with itself", e)
				}
			default:
				delete(first, key)
				signal := min(e.SignalNs, other.SignalNs)
				if len(both) != 2 || both[0] != (joinedTrip{linkKey{other.Rank, other.Peer, e.Context, e.Action.Backend}, e.Number, 64, e.Action, other.CounterNs, signal, e.InGraph}) ||
					both[1] != (joinedTrip{linkKey{e.Rank, e.Peer, e.Context, e.Action.Backend}, e.Number, 64, e.Action, e.CounterNs, signal, e.InGraph}) {
					t.Fatalf("%+v and %+v gave %+v", other, e, both)
				}
			}
		}
		if totals.Rejected != rejected || totals.Incomplete != 0 {
			t.Fatalf("%+v, want %d rejected", totals, rejected)
		}
	})
}

// What waits for the other rank is bounded; what nobody can have told is not taken.
func TestTripJoinerIsBounded(t *testing.T) {
	j, totals := tripJoiner{ranks: 2}, TripTotals{}
	e := Trip{Peer: 1, Action: gin4, SignalNs: 5}
	for i := range uint32(tripWindow + 100) {
		e.Number = i
		j.add(&totals, &e)
	}
	if len(j.open) != tripWindow || totals.Incomplete != 100 {
		t.Errorf("%d are open, %+v", len(j.open), totals)
	}
	for _, bad := range []Trip{{Rank: 1, Peer: 1, SignalNs: 5}, {Rank: -1, Peer: 1, SignalNs: 5}, {Rank: 0, Peer: 2, SignalNs: 5}, {Rank: 0, Peer: 1},
		{Rank: 0, Peer: 1, SignalNs: 5, CounterNs: -1}} {
		before := totals.Rejected
		if j.add(&totals, &bad) != nil || totals.Rejected != before+1 {
			t.Errorf("%+v is taken", bad)
		}
	}
}

// putter makes calls over GIN of which every rank tells: of several sizes, by ranks that come late.
type putter struct {
	t        *testing.T
	core     *Core
	number   uint32
	rng      *rand.Rand
	now      state.Ns
	found    []Finding
	counter  func(rank int32, bytes uint64) float64 // ns
	signal   func(rank, peer int32, bytes uint64) float64
	contexts uint8
}

const putRanks = 3

func newPutter(t *testing.T, seed uint64) *putter {
	t.Helper()
	core := kernelCore(t, Config{}, CommJoined{})
	core.Step(1, CommLeft{Comm: 1})
	core.Step(1, CommJoined{Comm: 1, Shape: state.Shape{Ranks: putRanks, Nodes: putRanks}})
	p := &putter{t: t, core: core, rng: rand.New(rand.NewPCG(seed, 7)), now: 1000, contexts: 2}
	p.quiet()
	return p
}

// quiet is a network card of 40 GB/s: 5 us until a source is read, 10 us there and back.
func (p *putter) quiet() {
	p.counter = func(_ int32, bytes uint64) float64 { return 5000 + float64(bytes)/40 }
	p.signal = func(_, _ int32, bytes uint64) float64 { return 10_000 + float64(bytes)/40 }
}

func (p *putter) noise() float64 { return math.Exp(0.05 * p.rng.NormFloat64()) }

func (p *putter) call() {
	p.number += 256
	p.now += 1e6
	bytes := []uint64{512, 4096, 65536, 262144}[p.rng.IntN(4)]
	var late [putRanks]float64
	for r := range late {
		late[r] = 50_000 * p.rng.Float64()
	}
	for r := range int32(putRanks) {
		for peer := range int32(putRanks) {
			for context := range p.contexts {
				if r == peer {
					continue
				}
				signal := max(p.signal(r, peer, bytes), p.signal(peer, r, bytes))*p.noise() + max(0, late[peer]-late[r])
				e := Trip{Comm: 1, Number: p.number, Rank: r, Peer: peer, Context: context, Action: gin4, Bytes: bytes,
					CounterNs: state.Ns(p.counter(r, bytes) * p.noise()), SignalNs: state.Ns(signal)}
				out := p.core.Step(p.now, &e)
				p.found = append(p.found, out.Findings...)
				if len(out.Plans)+len(out.Learned)+len(out.Watched) > 0 {
					p.t.Fatalf("a put led to %+v", out)
				}
			}
		}
	}
	p.found = append(p.found, p.core.Step(p.now, Tick{}).Findings...)
}

func (p *putter) calls(n int) {
	for range n {
		p.call()
	}
}

// What is told of a link is what its network takes, however late ranks come: the wait of who comes first is nowhere in it.
func TestTripsAreToldOf(t *testing.T) {
	p := newPutter(t, 1)
	p.calls(4000)
	links := p.core.LinksOf(1)
	if len(links) != putRanks*(putRanks-1)*2 || len(p.core.Links()) != len(links) || p.core.LinksOf(2) != nil {
		t.Fatalf("%d links", len(links))
	}
	if n := p.core.CountLinks(); n != (LinkCounts{Trips: 4000 * uint64(len(links)), Links: len(links)}) {
		t.Errorf("%+v of %d links", n, len(links))
	}
	for i, l := range links {
		if l.Trips != 4000 || l.FirstNs != 1001000 || l.LastNs != p.now || l.Backend != actions.BackendGDAKI || len(l.Sizes) != 4 || l.Verdict.Diagnosis != agents.DiagnosisNone ||
			i > 0 && links[i-1].Rank > l.Rank {
			t.Errorf("%+v", l)
		}
		for _, s := range l.Sizes {
			bytes := float64(uint64(1) << s.Log2Bytes)
			if !within(s.Signal.MedianNs, 10_000+bytes/40, 0.06) || !within(s.Counter.MedianNs, 5000+bytes/40, 0.05) {
				t.Errorf("%g bytes: %+v", bytes, s)
			}
		}
	}
	if totals := p.core.Totals().Trips; totals.Samples != 4000*uint64(len(links)) || totals.Joined != totals.Samples || totals.Rejected+totals.Incomplete+totals.Alarms+totals.Changes != 0 ||
		!within(float64(totals.CounterNs)/float64(totals.Counters), 5000+(512+4096+65536+262144)/160., 0.03) {
		t.Errorf("%+v", totals)
	}
	if len(p.found) != 0 {
		t.Errorf("found %+v", p.found)
	}
	p.core.Step(p.now, CommLeft{Comm: 1})
	if p.core.Links() != nil {
		t.Error("links of a communicator that has left")
	}
}

// A change is found, named rightly and told of once for all links that it touches; others stay as they are.
func TestTripsTellOfFaults(t *testing.T) {
	for name, c := range map[string]struct {
		fault func(p *putter)
		want  agents.Diagnosis
		moved func(l LinkView) bool // whose diagnosis it is
	}{
		"1.3 us more on every put of rank 1": {func(p *putter) {
			p.counter = func(rank int32, bytes uint64) float64 {
				return 5000 + float64(bytes)/40 + map[bool]float64{true: 1300}[rank == 1]
			}
			p.signal = func(rank, peer int32, bytes uint64) float64 {
				return 10_000 + float64(bytes)/40 + map[bool]float64{true: 1300}[rank == 1 || peer == 1]
			}
		}, agents.DiagnosisBackendFallback, func(l LinkView) bool { return l.Rank == 1 }},
		"a link of 10 GB/s": {func(p *putter) {
			p.counter = func(_ int32, bytes uint64) float64 { return 5000 + float64(bytes)/10 }
			p.signal = func(_, _ int32, bytes uint64) float64 { return 10_000 + float64(bytes)/10 }
		}, agents.DiagnosisCongestion, func(LinkView) bool { return true }},
		"rank 2 is slow to answer": {func(p *putter) {
			p.signal = func(rank, peer int32, bytes uint64) float64 {
				return 10_000 + float64(bytes)/40 + map[bool]float64{true: 4000 + float64(bytes)/40}[rank == 2 || peer == 2]
			}
		}, agents.DiagnosisRemoteSide, func(l LinkView) bool { return l.Rank == 2 || l.Peer == 2 }},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPutter(t, 4)
			p.calls(400)
			if len(p.found) > 0 {
				t.Fatalf("found before: %+v", p.found)
			}
			c.fault(p)
			p.calls(200)
			told := 0
			for _, f := range p.found {
				if f.Diagnosis == c.want {
					told++
				}
				if !strings.HasPrefix(f.Text, "puts of rank ") || !strings.Contains(f.Text, "over context ") {
					t.Errorf("%+v", f)
				}
			}
			if told != 1 {
				t.Errorf("told %d times: %+v", told, p.found)
			}
			for _, l := range p.core.LinksOf(1) {
				if c.moved(l) && (l.Verdict.Diagnosis != c.want || l.ChangedNs <= 400e6) {
					t.Errorf("link %d to %d over %d is said to be %v", l.Rank, l.Peer, l.Context, l.Verdict)
				}
			}
		})
	}
}

// Where more CTAs at once make each put take as much longer, that is found and told of once, with the fewest CTAs that do it;
// where they do not, nothing is.
func TestTripsTellOfSaturation(t *testing.T) {
	for _, c := range []struct {
		name   string
		takes  func(ctas float64) float64 // us of a put of 64 KiB
		before uint8                      // CTAs that suffice; 0: none is said
	}{
		{"room for all", func(ctas float64) float64 { return 20 + ctas/10 }, 0},
		{"one CTA is enough", func(ctas float64) float64 { return 20 * ctas }, 1},
		{"four are enough", func(ctas float64) float64 { return 20 * max(1, ctas/4) }, 4},
	} {
		core := kernelCore(t, Config{}, CommJoined{})
		core.Step(1, CommLeft{Comm: 1})
		core.Step(1, CommJoined{Comm: 1, Shape: state.Shape{Ranks: 2, Nodes: 2}})
		rng := rand.New(rand.NewPCG(4, 4))
		var found []Finding
		for i := range uint32(4000) {
			ctas := uint8(1) << rng.IntN(5)
			for rank := range int32(2) {
				out := core.Step(state.Ns(i)*1e6, &Trip{Comm: 1, Number: i, Rank: rank, Peer: 1 - rank, Bytes: 65536, CounterNs: 9000,
					SignalNs: state.Ns(1e3 * c.takes(float64(ctas)) * math.Exp(0.05*rng.NormFloat64())), Action: actions.Action{Path: actions.PathGIN, Backend: actions.BackendGDAKI, Channels: ctas}})
				if len(out.Findings) > 0 {
					t.Fatalf("%+v before the tick", out.Findings)
				}
			}
			for _, f := range core.Step(state.Ns(i)*1e6, Tick{}).Findings {
				if f.Diagnosis == agents.DiagnosisSaturated {
					found = append(found, f)
				}
			}
		}
		links := core.LinksOf(1)
		if c.before == 0 {
			if len(found) > 0 || len(links[0].Saturated) > 0 {
				t.Errorf("%s: %+v, %+v", c.name, found, links[0].Saturated)
			}
			continue
		}
		if len(found) != 1 || !strings.Contains(found[0].Text, "more contexts move nothing faster") || len(links) != 2 {
			t.Fatalf("%s: told %+v, %d links", c.name, found, len(links))
		}
		for _, l := range links {
			if len(l.Saturated) != 1 || l.Saturated[0].CTAs != c.before || l.Saturated[0].Bytes != 65536 || l.Verdict.Diagnosis != agents.DiagnosisNone {
				t.Errorf("%s: %+v, %v", c.name, l.Saturated, l.Verdict)
			}
		}
	}
}

// A program of many sizes, of which most come once: the one that comes again and again is judged all the same, however many came before
// it and come beside it, and no more is kept for it.
func TestTripsOfManySizesTellOfSaturation(t *testing.T) {
	core := kernelCore(t, Config{}, CommJoined{})
	core.Step(1, CommLeft{Comm: 1})
	core.Step(1, CommJoined{Comm: 1, Shape: state.Shape{Ranks: 2, Nodes: 2}})
	rng := rand.New(rand.NewPCG(4, 4))
	for i := range uint32(4000) {
		ctas, bytes := uint8(1)<<rng.IntN(2), uint64(65536)
		if i < 4*maxLoads || i%2 == 0 {
			bytes += 4 + 4*uint64(i)
		}
		for rank := range int32(2) {
			core.Step(state.Ns(i)*1e6, &Trip{Comm: 1, Number: i, Rank: rank, Peer: 1 - rank, Bytes: bytes, CounterNs: 9000,
				SignalNs: state.Ns(20e3 * float64(ctas) * math.Exp(0.05*rng.NormFloat64())), Action: actions.Action{Path: actions.PathGIN, Backend: actions.BackendGDAKI, Channels: ctas}})
		}
	}
	core.Step(4e9, Tick{})
	for _, l := range core.LinksOf(1) {
		if len(l.Saturated) != 1 || l.Saturated[0].Bytes != 65536 || l.Saturated[0].CTAs != 1 {
			t.Errorf("link %d to %d: %+v", l.Rank, l.Peer, l.Saturated)
		}
	}
	for _, l := range core.comms[1].trips.links {
		if len(l.loads) != maxLoads {
			t.Errorf("%d loads are kept", len(l.loads))
		}
	}
}

// Contexts by themselves: where as many CTAs take no less over more of them, that is said, with the fewest that do it.
func TestTripsTellOfContextsInVain(t *testing.T) {
	for _, c := range []struct {
		name   string
		takes  func(ctas, contexts float64) float64 // us of a put of 64 KiB
		before [2]uint8                             // CTAs and contexts that suffice; 0: none is said
	}{
		{"contexts that pay", func(ctas, contexts float64) float64 { return 20 + 60/contexts }, [2]uint8{}},
		{"CTAs that pay, and contexts do not", func(ctas, contexts float64) float64 { return 20 + ctas/10 + contexts }, [2]uint8{4, 1}},
		{"neither pays", func(ctas, contexts float64) float64 { return 20 * ctas }, [2]uint8{4, 1}},
		{"contexts pay up to two", func(ctas, contexts float64) float64 { return 20 + 60/min(contexts, 2) }, [2]uint8{4, 2}},
	} {
		core := kernelCore(t, Config{}, CommJoined{})
		core.Step(1, CommLeft{Comm: 1})
		core.Step(1, CommJoined{Comm: 1, Shape: state.Shape{Ranks: 2, Nodes: 2}})
		rng := rand.New(rand.NewPCG(4, 4))
		var found []Finding
		for i := range uint32(4000) {
			ctas, contexts := uint8(4)<<rng.IntN(2), uint8(1)<<rng.IntN(3)
			for rank := range int32(2) {
				out := core.Step(state.Ns(i)*1e6, &Trip{Comm: 1, Number: i, Rank: rank, Peer: 1 - rank, Bytes: 65536, CounterNs: 9000,
					SignalNs: state.Ns(1e3 * c.takes(float64(ctas), float64(contexts)) * math.Exp(0.05*rng.NormFloat64())),
					Action:   actions.Action{Path: actions.PathGIN, Backend: actions.BackendGDAKI, Channels: ctas, Contexts: contexts}})
				if len(out.Findings) > 0 {
					t.Fatalf("%+v before the tick", out.Findings)
				}
			}
			for _, f := range core.Step(state.Ns(i)*1e6, Tick{}).Findings {
				if f.Diagnosis == agents.DiagnosisSaturated {
					found = append(found, f)
				}
			}
		}
		links := core.LinksOf(1)
		if len(links) != 2 || (len(found) == 1) != (c.before[0] != 0) {
			t.Fatalf("%s: told %+v, %d links", c.name, found, len(links))
		}
		for _, l := range links {
			if c.before[0] == 0 {
				if len(l.Saturated) != 0 {
					t.Errorf("%s: %+v", c.name, l.Saturated)
				}
				continue
			}
			if s := l.Saturated; len(s) != 1 || [2]uint8{s[0].CTAs, s[0].Contexts} != c.before || !strings.Contains(s[0].String(), "move nothing faster") {
				t.Errorf("%s: %+v", c.name, s)
			}
		}
	}
}
