package tuner_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// graphs tell of puts, and of replays, between the calls of a session: of every size and of what is in force, cheaper and dearer than the
// calls, some not told by all ranks, some twice, and of a cost that changes.
type graphs struct {
	rng    *rand.Rand
	number uint32
	found  int
}

func (x *graphs) tell(g *group, buckets []state.Bucket) {
	for rank := range int32(g.ranks) {
		peer := (rank + 1 + x.rng.Int32N(int32(g.ranks)-1)) % int32(g.ranks)
		out := g.core.Step(state.Ns(g.seq)*1000+1, &tuner.Trip{Comm: comm, Number: uint32(g.seq), Rank: rank, Peer: peer,
			Action: actions.Action{Path: actions.PathGIN, Backend: actions.BackendProxy, Channels: 2}, Bytes: 1 << buckets[0].Log2Bytes, CounterNs: 500, SignalNs: 1 + state.Ns(x.rng.IntN(900)) + state.Ns(g.seq/1500*5000)})
		if len(out.Plans)+len(out.Learned)+len(out.Watched) > 0 {
			g.t.Fatalf("a put led to %+v", out)
		}
	}
	for range 3 {
		b := buckets[x.rng.IntN(len(buckets))]
		action := actions.Action{Path: actions.PathLSA, Kernel: actions.TwoShot, Channels: 16}
		if e, ok := g.force[b]; ok && x.rng.IntN(2) == 0 {
			action = e.Base
		}
		x.number += 1 + x.rng.Uint32N(100)
		ns := 5_000 * math.Exp(0.05*x.rng.NormFloat64()+0.1*math.Sin(float64(g.seq)/50)) // noise that no call has
		if g.seq > 1500 {
			ns *= 1.4
		}
		for rank := range g.ranks {
			for range 1 + x.rng.IntN(20)/19 - x.rng.IntN(20)/19 {
				out := g.core.Step(state.Ns(g.seq)*1000+1, &tuner.Replay{Comm: comm, Number: x.number, Rank: int32(rank), Bucket: b, Bytes: 1 << b.Log2Bytes,
					Action: action, SignalNs: state.Ns(ns) + state.Ns(x.rng.IntN(2000)), CounterNs: state.Ns(ns / 3)})
				if len(out.Plans)+len(out.Learned)+len(out.Watched) > 0 {
					g.t.Fatalf("a replay led to %+v", out)
				}
				x.found += len(out.Findings)
			}
		}
	}
}

// played is all that comes out of a session.
type played struct {
	trace    string
	plans    string
	buckets  []tuner.BucketView
	learned  []tuner.Learned
	findings []tuner.Finding
	totals   tuner.Totals
}

// playApart plays a session through a change of the fabric; replays: with or without them.
func playApart(t *testing.T, learner string, seed uint64, replays bool) played {
	quiet := load(t, "quiet")
	buckets := quiet.Buckets()[:6]
	g := newGroup(t, learner, true, quiet, seed)
	g.lose = 0.01
	g.join(tuner.CommJoined{Explore: true})
	g.marks(buckets)
	x := graphs{rng: rand.New(rand.NewPCG(seed, 9)), number: math.MaxUint32 - 10_000}
	var plans strings.Builder
	for i := range 3000 {
		if i == 2000 {
			g.table = load(t, "network-load")
		}
		before := g.plans
		g.run(buckets, 1)
		if g.plans != before {
			next := *g.next
			next.Closely = false // how often puts are timed is what puts may ask for
			fmt.Fprintf(&plans, "%d %+v\n", g.seq, next)
		}
		if replays {
			x.tell(g, buckets)
		}
	}
	ofCalls := slices.DeleteFunc(g.findings, func(f tuner.Finding) bool { return strings.HasPrefix(f.Text, "puts of rank ") }) // a Tick tells of puts, too
	p := played{g.trace.String(), plans.String(), g.core.Buckets(), g.learned, ofCalls, g.core.Totals()}
	if r := p.totals.Replays; replays && (r.Joined < 5000 || r.Incomplete == 0 || r.Late == 0 || r.Changes < 6 || uint64(x.found) != r.Changes || len(g.core.Replays()) < 6) {
		t.Errorf("%s: %+v, %d findings: these replays show nothing", learner, r, x.found)
	}
	if trips := p.totals.Trips; replays && (trips.Joined < 1000 || trips.Alarms == 0) {
		t.Errorf("%s: %+v: these puts show nothing", learner, trips)
	}
	p.totals.Replays, p.totals.Trips = tuner.ReplayTotals{}, tuner.TripTotals{}
	return p
}

// A session with replays, and puts over GIN, between its calls has the same plans, choices, findings and counts as without them.
func TestReplaysChangeNothingElse(t *testing.T) {
	for i, learner := range []string{agents.NameUCB, agents.NameCoordinateDescent} {
		without, with := playApart(t, learner, uint64(i), false), playApart(t, learner, uint64(i), true)
		if strings.Count(with.plans, "\n") < 20 || len(with.findings) == 0 || len(with.learned) == 0 {
			t.Errorf("%s: %d findings, %d learned choices, plans %s: this session shows nothing", learner, len(with.findings), len(with.learned), with.plans)
		}
		if with.trace != without.trace || with.plans != without.plans {
			t.Errorf("%s: other choices with replays than without", learner)
		}
		if !reflect.DeepEqual(with.buckets, without.buckets) || !reflect.DeepEqual(with.learned, without.learned) || !slices.Equal(with.findings, without.findings) ||
			with.totals != without.totals {
			t.Errorf("%s: other reports with replays than without: %+v and %+v", learner, with.totals, without.totals)
		}
	}
}
