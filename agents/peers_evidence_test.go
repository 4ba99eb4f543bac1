package agents

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
)

func measure(a *arms, i int, ns float64, times int) {
	for range times {
		o := seen(a.set[i], ns)
		a.add(&o)
	}
}

func evidenceOf(set []actions.Action, own uint8, peers ...uint8) (e *peerEvidence, of []*arms) {
	p := NewPeers()
	for _, b := range peers {
		a := newArms(set)
		p.join(bucketOf(b), a)
		of = append(of, a)
	}
	a := newArms(set)
	p.join(bucketOf(own), a)
	m := newCostModel(set, bucketOf(own))
	return newPeerEvidence(Task{Set: set, Bucket: bucketOf(own), Peers: p}, a, m), of
}

// A near bucket says more than a far one, one out of reach nothing, and none says more than the floor allows.
func TestEvidenceFallsWithDistance(t *testing.T) {
	set := fullSet()
	i := find(t, set, "Ring/LL/8")
	last := math.Inf(1)
	for _, distance := range []uint8{1, 2, 4, 6} {
		e, of := evidenceOf(set, 10, 10+distance)
		measure(of[0], 0, 1000, 8)
		measure(of[0], i, 700, 8)
		e.gather(0.05)
		if e.precision[i] <= 0 || e.precision[i] >= last || e.precision[i] > 1/(peerFloor*peerFloor) {
			t.Errorf("precision %f at distance %d, %f before", e.precision[i], distance, last)
		}
		last = e.precision[i]
		if e.precision[0] != 0 {
			t.Error("the default is the reference: nobody knows more of it")
		}
	}
	e, of := evidenceOf(set, 10, 17)
	measure(of[0], 0, 1000, 8)
	measure(of[0], i, 700, 8)
	if e.gather(0.05); e.precision[i] != 0 {
		t.Errorf("a bucket out of reach has precision %f", e.precision[i])
	}
}

// Where NCCL's default is another choice, all relative costs of a peer are off by the same: one action measured on both
// sides tells by how much.
func TestEvidenceSharesTheShift(t *testing.T) {
	set := fullSet()
	a, b := find(t, set, "Ring/LL/8"), find(t, set, "Tree/LL/8")
	e, of := evidenceOf(set, 10, 11)
	measure(of[0], 0, 1000, 16)
	measure(of[0], a, 1000, 16)
	measure(of[0], b, 800, 16)
	e.gather(0.05)
	before := e.relative[b]
	measure(e.own, 0, 1000, 16)
	measure(e.own, a, 700, 16)
	e.gather(0.05)
	if before > math.Log(0.8)+0.01 || e.relative[b] > before-0.1 {
		t.Errorf("%f before, %f after an action that both know turned out %f less", before, e.relative[b], math.Log(0.7))
	}
}

// What a peer measured before conditions changed here does not count until they have changed there too.
func TestEvidenceIsOfThisCondition(t *testing.T) {
	set := fullSet()[:3]
	p := NewPeers()
	task := func(b uint8) Task {
		return Task{Set: set, Bucket: bucketOf(b), Peers: p, Rand: rand.New(rand.NewPCG(1, 1))}
	}
	peer, own := newUCB(task(12)).(*ucb), newUCB(task(10)).(*ucb)
	says := func() bool {
		measure(peer.arms, 0, 1000, window)
		measure(peer.arms, 1, 900, window)
		own.others.gather(0.05)
		return own.others.precision[1] > 0
	}
	if !says() {
		t.Error("nothing is heard of a peer in the first condition")
	}
	own.Shift(DiagnosisCongestion)
	if says() {
		t.Error("a peer is heard that has not noticed the change")
	}
	peer.Shift(DiagnosisCongestion)
	if !says() {
		t.Error("a peer that has noticed it as well is not heard")
	}
	measure(peer.arms, 2, 1000, 3*window)
	own.Shift(DiagnosisRecovered)
	if says() {
		t.Error("a peer is heard that has not noticed the second change")
	}
}

// The clock that tells conditions apart goes on where a bucket begins anew with other choices, as it does when ranks can run more of them.
func TestEvidenceStaysOldWhereABucketBeginsAnew(t *testing.T) {
	set := fullSet()[:3]
	p := NewPeers()
	task := func(b uint8) Task {
		return Task{Set: set, Bucket: bucketOf(b), Peers: p, Rand: rand.New(rand.NewPCG(1, 1))}
	}
	other, peer, own := newUCB(task(14)).(*ucb), newUCB(task(12)).(*ucb), newUCB(task(10)).(*ucb)
	measure(other.arms, 0, 1000, 1000)
	peer.Shift(DiagnosisCongestion)
	measure(peer.arms, 0, 1000, window)
	measure(peer.arms, 1, 900, window)
	before := p.now()
	newUCB(task(14))
	if now := p.now(); now != before {
		t.Errorf("the clock went from %d to %d", before, now)
	}
	measure(own.arms, 0, 1000, 500)
	own.Shift(DiagnosisCongestion)
	if own.others.gather(0.05); own.others.precision[1] > 0 {
		t.Error("a peer is heard that measured 500 calls before the change")
	}
}

// A peer that compares an action of one condition with a default of another is not believed.
func TestEvidenceMustBePlausible(t *testing.T) {
	e, of := evidenceOf(fullSet(), 10, 11)
	measure(of[0], 0, 1e7, 8)
	measure(of[0], 1, 1e4, 8)
	if e.gather(0.05); e.precision[1] != 0 {
		t.Errorf("a relative log cost of %f is believed", e.relative[1])
	}
}

// What one bucket found, the next tries first, and what was hopeless there it does not try.
func TestLearnersHearTheirPeers(t *testing.T) {
	set := fullSet()
	good := func(a actions.Action) bool {
		return a.Path == actions.PathCollective && a.Algorithm == actions.Tree && a.Protocol == actions.LL128
	}
	for _, name := range []string{NameUCB, NameThompson, NameSuccessiveHalving} {
		newLearner, _ := New(name)
		heard, calls := 0, 0
		for seed := range uint64(10) {
			p := NewPeers()
			var learners []Learner
			for _, b := range []uint8{10, 12} {
				learners = append(learners, newLearner(Task{Set: set, Bucket: bucketOf(b), Peers: p, Rand: rand.New(rand.NewPCG(seed, uint64(b)))}))
			}
			for _, a := range set {
				ns := 2000.0
				switch {
				case good(a):
					ns = 500
				case a == actions.Default:
					ns = 1000
				}
				for range 4 {
					learners[0].Observe(seen(a, ns))
				}
			}
			learners[1].Observe(seen(actions.Default, 1000))
			_, trials := learners[1].Propose(4)
			if len(trials) > 0 && good(trials[0]) {
				heard++
			}
			calls++
		}
		if heard < 8 {
			t.Errorf("%s: only %d of %d first trials are of the neighbour's best line", name, heard, calls)
		}
	}
}

// communicator is 18 buckets in the middle of learning, one call at a time.
func communicator(t testing.TB, name string) (guards []*Guard, worlds []simWorld) {
	newLearner := newNamed(t, name)
	set, p := fullSet(), NewPeers()
	for k := range 18 {
		b := state.Bucket{Collective: []actions.Collective{actions.AllReduce, actions.AllGather, actions.ReduceScatter}[k%3], Log2Bytes: uint8(10 + k/3*2)}
		rng := rand.New(rand.NewPCG(uint64(k), 1))
		l := newLearner(Task{Set: set, Bucket: b, Peers: p, Rand: rng})
		guards = append(guards, NewGuard(l, set, b, nil, DefaultGuardConfig()))
		worlds = append(worlds, simWorld{additive, 0.05, rand.New(rand.NewPCG(uint64(k), 7))})
	}
	return guards, worlds
}

func step(g *Guard, w simWorld) {
	base, trials := g.Propose(1)
	if len(trials) > 0 {
		base = trials[0]
	}
	g.Observe(w.call(base))
}

func TestOneCallAtATimeFindsTheBest(t *testing.T) {
	for _, name := range adaptive() {
		guards, worlds := communicator(t, name)
		for range 64 {
			for k, g := range guards {
				step(g, worlds[k])
			}
		}
		within := 0
		for k, g := range guards {
			base, trials := g.Propose(1)
			if len(trials) > 0 {
				base = trials[0]
			}
			if worlds[k].cost(base) <= 1.1*1e5/1.6 {
				within++
			}
		}
		if within < len(guards)*3/4 {
			t.Errorf("%s: only %d of %d buckets are within 10%% of the best after 64 calls", name, within, len(guards))
		}
		g := guards[3]
		if n := testing.AllocsPerRun(50, func() { g.Propose(1) }); n != 0 {
			t.Errorf("%s: %.1f allocations a proposal with peers", name, n)
		}
	}
}

func BenchmarkProposeOne(b *testing.B) {
	for _, name := range adaptive() {
		for _, calls := range []int{4, 16, 64} {
			b.Run(fmt.Sprintf("%s/calls=%d", name, calls), func(b *testing.B) {
				guards, worlds := communicator(b, name)
				for range calls {
					for k, g := range guards {
						step(g, worlds[k])
					}
				}
				b.ReportAllocs()
				n := 0
				for b.Loop() {
					guards[n%len(guards)].Propose(1)
					n++
				}
			})
		}
	}
}
