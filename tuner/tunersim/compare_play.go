package tunersim

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"dynamiccl/agents"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// Comparison says how scenarios are played; it is the same for all learners.
type Comparison struct {
	Calls  int // of every bucket in every condition
	Noise  Noise
	Guard  agents.GuardConfig
	Design agents.Design // of the detectors
	Daemon bool          // answers take force and results come back as late as in a daemon
}

// NoiseOf is the noise of a comparison: lognormal with the given standard deviation, and delayed calls as many as
// DefaultNoise has at 5%, growing with sigma up to one call of twenty. Their length is not noise's to scale. One group
// call of fifty is lost. 0 is no noise and no loss. Waiting for late ranks is charged to nobody, so skew does not appear.
func NoiseOf(sigma float64) Noise {
	if sigma == 0 {
		return Noise{}
	}
	n := DefaultNoise()
	n.TailProb = min(maxTailProb, n.TailProb*sigma/n.Sigma)
	n.Sigma, n.SkewNs = sigma, 0
	return n
}

const maxTailProb = 0.05

// player is what runs in a scenario. All calls of all buckets go through one.
type player interface {
	enter(condition int)
	next(bucket int) (action int)
	seen(bucket, action int, counterNs, signalNs state.Ns)
	after() // the call is over
}

// Played is what one learner did in one scenario. Costs are the tables', without noise.
type Played struct {
	scenario *Scenario
	learner  string
	seed     uint64
	costNs   [][]float64 // [bucket][call] of the last condition
}

// firstNoise is the first random stream that noise takes of a seed; those below are of the order of calls and of lags.
const firstNoise = 16

// Play lets a learner play a scenario: in every round each bucket makes one call, in random order. Order and noise
// follow from the seed alone.
func (c Comparison) Play(ctx context.Context, s *Scenario, l Contender, seed uint64) (*Played, error) {
	if c.Calls <= 0 {
		return nil, fmt.Errorf("%d calls: %w", c.Calls, ErrBadComparison)
	}
	p, err := c.player(s, l, seed)
	if err != nil {
		return nil, err
	}
	out := &Played{scenario: s, learner: l.Name, seed: seed, costNs: make([][]float64, len(s.buckets))}
	order := make([]int, len(s.buckets))
	for i := range order {
		order[i], out.costNs[i] = i, make([]float64, 0, c.Calls)
	}
	rhythm := rand.New(rand.NewPCG(seed, 1))
	noise := make([]*Sampler, len(s.buckets))
	for i := range noise { // one stream a bucket: what a learner chooses moves no other call's noise
		noise[i] = NewSampler(SplitNoise(c.Noise), rand.New(rand.NewPCG(seed, uint64(firstNoise+i))))
	}
	for condition := range s.conditions {
		p.enter(condition)
		for range c.Calls {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			rhythm.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
			for _, i := range order {
				k, a := &s.buckets[i], p.next(i)
				counterNs, signalNs, _ := noise[i].Draw(Cost{CounterNs: k.counts[condition][a], SignalNs: k.costNs[condition][a]}, s.Topology.Ranks)
				if condition == s.conditions-1 {
					out.costNs[i] = append(out.costNs[i], k.costNs[condition][a])
				}
				if !noise[i].Lost() {
					p.seen(i, a, nsOf(counterNs), nsOf(signalNs))
				}
				p.after()
			}
		}
	}
	return out, nil
}

func nsOf(ns float64) state.Ns { return max(1, state.Ns(math.Round(ns))) }

func (c Comparison) player(s *Scenario, l Contender, seed uint64) (player, error) {
	if l.New == nil {
		choices, err := s.fixed(l.Name)
		return &knowing{choices: choices}, err
	}
	cfg := tuner.SessionConfig{NewLearner: l.New, Guard: c.Guard, Design: c.Design, Topology: s.Topology, Seed: seed, Batch: l.Batch}
	for _, k := range s.buckets {
		cfg.Buckets = append(cfg.Buckets, tuner.SessionBucket{Bucket: k.Bucket, Bytes: k.bytes, Set: k.set})
	}
	session, err := tuner.NewSession(cfg)
	if err != nil {
		return nil, err
	}
	if c.Daemon {
		return newLate(s, session, seed), nil
	}
	return asking{session}, nil
}

// knowing has all answers.
type knowing struct {
	choices   [][]int // [condition][bucket]
	condition int
}

func (k *knowing) enter(condition int)          { k.condition = condition }
func (k *knowing) next(bucket int) int          { return k.choices[k.condition][bucket] }
func (k *knowing) seen(_, _ int, _, _ state.Ns) {}
func (k *knowing) after()                       {}

// asking asks a learner at every call and tells the result at once.
type asking struct{ session *tuner.Session }

func (a asking) enter(int)           {}
func (a asking) next(bucket int) int { return a.session.Ask(bucket) }
func (a asking) after()              {}
func (a asking) seen(bucket, action int, counterNs, signalNs state.Ns) {
	a.session.Tell(bucket, action, counterNs, signalNs)
}

// late plays the part of the daemon: plans take force at the next epoch of the communicator, an epoch's results are seen
// at its own end or one epoch later, trials come in batches.
type late struct {
	scenario *Scenario
	session  *tuner.Session
	rng      *rand.Rand
	plans    []indexPlan // in force, by bucket
	epoch    []told
	delayed  []told // results of the epoch before
	calls    int
}

type indexPlan struct {
	base   int
	trials []int
	ran    int
}

type told struct {
	bucket, action      int
	counterNs, signalNs state.Ns
}

// epochCalls is DYN_EPOCH_CALLS of nccltuner/abi.h.
const epochCalls = 16

func newLate(s *Scenario, session *tuner.Session, seed uint64) *late {
	return &late{scenario: s, session: session, rng: rand.New(rand.NewPCG(seed, 3)), plans: make([]indexPlan, len(s.buckets))}
}

func (l *late) enter(int) {}

func (l *late) next(bucket int) int {
	p := &l.plans[bucket]
	p.ran++
	if p.ran <= len(p.trials) {
		return p.trials[p.ran-1]
	}
	return p.base
}

func (l *late) seen(bucket, action int, counterNs, signalNs state.Ns) {
	l.epoch = append(l.epoch, told{bucket, action, counterNs, signalNs})
}

func (l *late) after() {
	if l.calls++; l.calls%epochCalls != 0 {
		return
	}
	for _, t := range l.delayed {
		l.session.Tell(t.bucket, t.action, t.counterNs, t.signalNs)
	}
	l.delayed, l.epoch = l.epoch, l.delayed[:0]
	if l.rng.IntN(2) == 0 {
		for _, t := range l.delayed {
			l.session.Tell(t.bucket, t.action, t.counterNs, t.signalNs)
		}
		l.delayed = l.delayed[:0]
	}
	for i := range l.plans {
		base, trials, changed := l.session.Plan(i)
		if !changed {
			continue
		}
		p := indexPlan{base: slices.Index(l.scenario.buckets[i].set, base)}
		for _, a := range trials {
			p.trials = append(p.trials, slices.Index(l.scenario.buckets[i].set, a))
		}
		l.plans[i] = p
	}
}
