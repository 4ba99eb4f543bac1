package train

import (
	"math"
	"math/rand/v2"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
	"dynamiccl/tuner/tunersim"
)

// sequence is what one bucket of an episode teaches: what the policy read and was asked, and what was true.
type sequence struct {
	tokens    []float64 // [T, TokenWidth]
	decisions []agents.Decision
	truth     [][]float64 // by phase, [A]: log cost over the default's
	costs     []float64   // of every call, observed
}

// Lengths of an episode, in calls of a bucket.
const (
	maxBuckets    = 6
	minFirstPhase = 10
	maxFirstPhase = 64
	minNextPhase  = 30
	maxNextPhase  = 64
	onePhase      = 80
)

// Noise that episodes draw from.
const (
	minSigma = 0.02
	maxSigma = 0.20
	maxTail  = 0.03
	// meanTailLog is the mean log factor of a delayed call.
	meanTailLog = 0.7
	exploring   = 0.05 // part of calls that run any action at all, so that the policy sees what it would not try
	minHorizon  = 4
	maxHorizon  = 80
	hideShape   = 0.3 // part of episodes in which transport and NICs are not known, as where ranks cannot prove them (docs/design.md, decision 32)
)

// world is one bucket of an episode.
type world struct {
	bucket  state.Bucket
	set     []actions.Action
	costs   [][]float64 // by phase, [A], ns
	counter [][]float64 // by phase, [A], ns
	sampler *tunersim.Sampler
	learner agents.Learner
	detect  *agents.Detector
	tape    *agents.Tape
	index   map[actions.Action]int
	phase   int
	calls   int
	queue   []actions.Action
	base    actions.Action
}

// runEpisode plays the policy on one machine and gives a sequence for each of its buckets.
func runEpisode(w *agents.PolicyWeights, opt agents.PolicyOptions, source Source, grid []int, design agents.Design, rng *rand.Rand) []sequence {
	tables := source(rng)
	buckets := tunersim.CommonBuckets(tables)
	rng.Shuffle(len(buckets), func(i, j int) { buckets[i], buckets[j] = buckets[j], buckets[i] })
	buckets = buckets[:min(len(buckets), 1+rng.IntN(maxBuckets))]
	topology := tables[0].Topology()
	if rng.Float64() < hideShape {
		topology.Transport, topology.NICs = "", 0
	}
	lengths := []int{onePhase}
	if len(tables) > 1 {
		lengths = []int{minFirstPhase + rng.IntN(maxFirstPhase-minFirstPhase), minNextPhase + rng.IntN(maxNextPhase-minNextPhase)}
	}
	opt.Horizon = minHorizon * math.Exp(rng.Float64()*math.Log(maxHorizon/minHorizon))
	batch := 1
	if rng.Float64() < 0.25 {
		batch = 12
	}
	sigma := minSigma * math.Exp(rng.Float64()*math.Log(maxSigma/minSigma))
	noise := tunersim.SplitNoise(tunersim.Noise{Sigma: sigma, TailProb: maxTail * rng.Float64(), TailLog: meanTailLog})
	peers := agents.NewPeers()
	worlds := make([]*world, len(buckets))
	for i, b := range buckets {
		worlds[i] = newWorld(tables, b, topology, peers, w, opt, grid, design, noise, rng)
	}
	random := exploring
	if opt.Actor.Temperature > 0 { // chance is the policy's own, or its gradient would be of other choices
		random = 0
	}
	live := append([]*world(nil), worlds...)
	for len(live) > 0 {
		k := rng.IntN(len(live))
		x := live[k]
		x.call(batch, random, rng)
		if x.calls++; x.calls == lengths[x.phase] {
			if x.phase++; x.phase == len(lengths) {
				live = append(live[:k], live[k+1:]...)
				continue
			}
			x.calls, x.tape.Phase = 0, x.phase
		}
	}
	out := make([]sequence, len(worlds))
	for i, x := range worlds {
		out[i] = sequence{tokens: x.tape.Tokens, decisions: x.tape.Decisions, costs: x.tape.Costs}
		for _, costs := range x.costs {
			truth := make([]float64, len(costs))
			for a, c := range costs {
				truth[a] = min(maxTruth, max(minTruth, math.Log(c/costs[0])))
			}
			out[i].truth = append(out[i].truth, truth)
		}
	}
	return out
}

// Truths outside of these say no more than "very good" and "hopeless".
const (
	minTruth = -2.5
	maxTruth = 2
)

func newWorld(tables []*tunersim.Table, b state.Bucket, topology state.Topology, peers *agents.Peers, w *agents.PolicyWeights,
	opt agents.PolicyOptions, grid []int, design agents.Design, noise tunersim.CallNoise, rng *rand.Rand) *world {
	x := &world{bucket: b, detect: agents.NewDetector(design), sampler: tunersim.NewSampler(noise, rng), index: map[actions.Action]int{}}
	x.set, x.costs, x.counter = tunersim.CommonChoices(tables, b)
	for i, a := range x.set {
		x.index[a] = i
	}
	next := 0
	x.tape = &agents.Tape{Wanted: func(tokens int) bool {
		for next < len(grid) && grid[next] < tokens {
			next++
		}
		return next < len(grid) && grid[next] == tokens
	}}
	opt.Tape = x.tape
	maker, err := agents.NewLSTM(w, opt)
	if err != nil {
		panic(err) // weights come from our own optimiser, which refuses what is not finite
	}
	x.learner = maker(agents.Task{Set: x.set, Bucket: b, Topology: topology, Peers: peers, Rand: rng})
	return x
}

// call makes one call of the bucket and gives the index of what it ran.
func (x *world) call(batch int, exploring float64, rng *rand.Rand) int {
	if len(x.queue) == 0 {
		base, trials := x.learner.Propose(batch)
		x.base, x.queue = base, append(x.queue[:0], trials...)
	}
	a := x.base
	if len(x.queue) > 0 {
		a, x.queue = x.queue[0], x.queue[1:]
	}
	if rng.Float64() < exploring {
		a = x.set[rng.IntN(len(x.set))]
	}
	i := x.index[a]
	o := state.Observation{Action: a, Bytes: 1 << x.bucket.Log2Bytes}
	counter, signal, _ := x.sampler.Draw(tunersim.Cost{CounterNs: x.counter[x.phase][i], SignalNs: x.costs[x.phase][i]}, 1)
	o.CounterNs, o.SignalNs = state.Ns(counter), state.Ns(signal)
	x.learner.Observe(o)
	if x.detect.Observe(o).Raised {
		x.learner.Shift(agents.DiagnosisUnknown)
		x.queue = x.queue[:0]
	}
	return i
}
