package tuner_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/models"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// step is a training step: calls on one stream with compute on another.
type step struct {
	calls    []stepCall
	join     joinMode
	channels float64 // of NCCL's default; 0: 24
	ours     bool    // one node, and our kernel for large calls beside NCCL's default
}

type stepCall struct {
	bytes     uint64
	computeNs float64 // until the next call's data is there
}

// joinMode says where compute waits for a call.
type joinMode int

const (
	serial  joinMode = iota // compute begins when the call is done
	beside                  // compute runs beside the call, and both must be done before the next one
	backlog                 // compute waits for the last call of the step only
)

// costOf is a fabric on which more channels make a call faster and take more of the GPU from compute, as they do.
func (s *step) costOf(a actions.Action, bytes uint64) (callNs, stolenNs float64) {
	if s.ours {
		return bulkCost(a, bytes)
	}
	channels, protocol := cmp.Or(s.channels, 24), 1.0
	if a != actions.Default {
		channels = float64(a.Channels)
		protocol = map[actions.Protocol]float64{actions.LL: 2.2, actions.LL128: 1.25, actions.Simple: 1}[a.Protocol]
		if a.Algorithm == actions.Tree {
			protocol *= 1.15
		}
	}
	callNs = protocol * (40e3 + float64(bytes)/20) * (0.72 + 2.1/channels) // 20 bytes a ns
	return callNs, callNs * channels / 132                                 // SMs of an H200
}

// play is a core, and a program of two ranks that makes the same step again and again.
type play struct {
	t       *testing.T
	core    *tuner.Core
	step    step
	rng     *rand.Rand
	jitter  float64 // of compute
	force   map[state.Bucket]tuner.Entry
	next    *tuner.Plan
	version uint32 // of the latest plan
	running uint32 // of the one in force
	every   int
	ids     map[state.Bucket]uint32
	made    map[state.Bucket]int
	seq     uint64
	steps   int
	clock   float64                         // ns
	free    float64                         // when the stream of the calls is free
	paused  bool                            // the host stands still now and then
	dearer  float64                         // times what calls took at first; 0: 1
	fixed   map[state.Bucket]actions.Action // nil: what the core says
	single  bool                            // ranks time trials one by one
	trial   bool                            // the call under way is timed for that
	behind  int                             // samples that are on their way to the core: programs run ahead of their GPU
	onWay   []tuner.Sample
	onPlan  func(tuner.Plan) // nil: nobody looks
	timed   int              // calls
	odd     int              // steps from one to the next behind which there is another call; 0: none
	lasting bool             // what events take from kernels that begin early is part of the calls that are timed
}

func newPlay(t *testing.T, learner string, reward tuner.Reward, s step, seed uint64) *play {
	t.Helper()
	return playOf(t, learner, tuner.Config{Explore: true, Seed: seed, Reward: reward}, s)
}

func playOf(t *testing.T, learner string, cfg tuner.Config, s step, stored ...tuner.Learned) *play {
	t.Helper()
	learners, err := models.Open("")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.NewLearner, err = learners.New(learner); err != nil {
		t.Fatal(err)
	}
	core, err := tuner.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p := &play{t: t, core: core, step: s, rng: rand.New(rand.NewPCG(cfg.Seed, 7)), jitter: 0.005, every: 1, force: map[state.Bucket]tuner.Entry{},
		ids: map[state.Bucket]uint32{}, made: map[state.Bucket]int{}, clock: 1e9, free: 1e9}
	shape, marks := state.Shape{Ranks: 2, Nodes: 2}, classicMarks(actions.AllReduce)
	if s.ours {
		shape, marks = state.Shape{Ranks: 4, Nodes: 1}, tuner.MarkBulk
	}
	p.tell(tuner.CommJoined{Comm: comm, Shape: shape, Explore: cfg.Explore, EventTimed: true, Prior: stored})
	if s.ours {
		p.tell(tuner.KernelsOpen{Comm: comm})
	}
	for _, c := range s.calls {
		p.tell(tuner.Marks{Comm: comm, Bucket: p.bucket(c), Set: marks})
	}
	return p
}

func (p *play) bucket(c stepCall) state.Bucket {
	b, _ := state.BucketOf(actions.AllReduce, c.bytes)
	return b
}

func (p *play) tell(e tuner.Event) {
	out := p.core.Step(state.Ns(p.clock), e)
	for _, plan := range out.Plans {
		plan.Entries = slices.Clone(plan.Entries)
		p.next = &plan
		p.version++
		if p.onPlan != nil {
			p.onPlan(plan)
		}
	}
	if len(out.Plans) > 0 {
		p.tell(tuner.Published{Comm: comm, Version: uint64(p.version)})
	}
	if len(out.Learned) > 0 && p.fixed == nil && p.core.Buckets()[0].Reward == tuner.RewardExposed {
		p.t.Fatal("what a call adds to one program's step was given to the store")
	}
}

// action is what the next call of a bucket runs, as the plugin counts (docs/design.md, decisions 2 and 5).
func (p *play) action(b state.Bucket) actions.Action {
	if p.seq%epochCalls == 0 && p.next != nil {
		p.force, p.every, p.running = map[state.Bucket]tuner.Entry{}, p.next.SampleEvery, p.version
		for _, e := range p.next.Called() {
			p.force[e.Bucket] = e
		}
		p.next = nil
	}
	if p.fixed != nil {
		return p.fixed[b]
	}
	e := p.force[b]
	if e.ID != p.ids[b] {
		p.ids[b], p.made[b] = e.ID, 0
	}
	p.made[b]++
	if p.single {
		p.trial = p.made[b] > 1 && p.made[b] <= e.Skip+len(e.Trials)
		return e.Action(p.made[b])
	}
	if n := p.made[b]; n <= len(e.Trials) {
		return e.Trials[n-1]
	}
	return e.Base
}

func (p *play) noise(sigma float64) float64 { return math.Exp(sigma * p.rng.NormFloat64()) }

// run makes so many steps and gives the mean time of one, pauses left out.
func (p *play) run(steps int) (meanNs float64) {
	began, pauses := p.clock, 0.0
	for range steps {
		for i, c := range p.step.calls {
			pauses += p.call(c, i == len(p.step.calls)-1)
		}
		if p.steps++; p.odd > 0 && p.steps%p.odd == 0 {
			pauses += p.call(stepCall{1 << 20, 1e5}, true)
		}
	}
	return (p.clock - began - pauses) / float64(steps)
}

// call makes one call and the compute behind it, and gives how long the host stood still; last: of its step.
func (p *play) call(c stepCall, last bool) (pauseNs float64) {
	b := p.bucket(c)
	a := p.action(b)
	callNs, stolenNs := p.step.costOf(a, c.bytes)
	callNs *= cmp.Or(p.dearer, 1)
	callNs *= p.noise(0.03)
	if p.lasting && p.times() && cmp.Or(float64(a.Channels), p.step.channels) >= 16 {
		callNs += 1500
	}
	computeNs := c.computeNs * p.noise(p.jitter)
	start := max(p.clock, p.free)
	end := start + callNs
	p.free = end
	switch {
	case p.step.join == serial:
		p.clock = end + computeNs
	case p.step.join == beside || last:
		p.clock = max(end, p.clock+computeNs+stolenNs)
	default:
		p.clock += computeNs + stolenNs
	}
	if p.paused && p.rng.IntN(300) == 0 {
		pauseNs = 500e6
		p.clock += pauseNs
	}
	p.sample(b, c.bytes, a, start, end)
	p.seq++
	if p.seq%tickCalls == 0 {
		p.tell(tuner.Tick{})
	}
	return pauseNs
}

// times says that the call under way is timed.
func (p *play) times() bool { return p.seq/epochCalls%uint64(p.every) == 0 || p.trial }

func (p *play) sample(b state.Bucket, bytes uint64, a actions.Action, start, end float64) {
	if !p.times() {
		return
	}
	p.timed++
	const eventsNs = 2000 // what lies between events and is no call's
	ranks := int32(2)
	if p.step.ours {
		ranks = 4
	}
	for r := range ranks {
		skew := 3000 * (1 - min(1, float64(r))) // rank 0 comes first
		took := state.Ns(end - start + skew + eventsNs)
		s := tuner.Sample{Comm: comm, Seq: p.seq, Rank: r, Bucket: b, Bytes: bytes, Plan: p.running, StartNs: uint64(start - skew), ClockNs: 5000, EventTimed: true,
			CounterNs: took, SignalNs: took, Action: a, Ran: a}
		if p.single {
			s.EntryCall = uint8(min(p.made[b], 255))
		}
		if a == actions.Default {
			s.Ran = actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.Simple, Channels: uint8(cmp.Or(p.step.channels, 24))}
		}
		if p.behind == 0 {
			p.tell(&s)
			continue
		}
		for p.onWay = append(p.onWay, s); len(p.onWay) > p.behind; p.onWay = p.onWay[1:] {
			p.tell(&p.onWay[0])
		}
	}
}

// truth is the time of a step that runs these choices and NCCL's default elsewhere, with no noise of compute.
func truth(t *testing.T, s step, choices ...tuner.BucketView) float64 {
	t.Helper()
	p := newPlay(t, agents.NameDefault, tuner.RewardCall, s, 1)
	p.fixed, p.jitter = map[state.Bucket]actions.Action{}, 0
	for _, v := range choices {
		p.fixed[v.Bucket] = v.Choice
	}
	return p.run(40)
}
