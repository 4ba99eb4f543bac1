package agents

import (
	"math"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// NameLSTM is the recurrent policy.
const NameLSTM = "lstm"

// PolicyOptions are what a policy runs with beside its weights.
type PolicyOptions struct {
	Horizon float64 // calls that what is found will be worth; see decide
	Without Without
	Actor   Actor // what chooses; zero: the knowledge gradient
	Tape    *Tape // training writes down what the policy saw; nil: nothing
}

// DefaultPolicyOptions is what serve runs.
func DefaultPolicyOptions() PolicyOptions { return PolicyOptions{Horizon: 8} }

// lstm is the recurrent policy for one bucket. Its LSTM reads the calls one after the other; for every action the heads
// then say what it will cost and how sure that is. They start from what a Gaussian process makes of all measurements
// (belief), and the action's own are counted again by Bayes' rule, so that no choice rests on the network alone once it
// is measured.
type lstm struct {
	belief
	opt      PolicyOptions
	net      policyNet
	task     Task
	machine  [machineWidth]float64
	context  [ContextWidth]float64
	token    [TokenWidth]float64
	features []float64 // [A, ActionWidth]

	mean, variance []float64 // [A]: of log cost over the default, own measurements counted
	prior          []float64 // [A]: variance without them
	blend, doubt   []float64 // [A]: mean and variance that decisions rest on, the belief's part included
	share          []shares  // [A]
	lastCall       []int     // [A]: sinceShift when it ran last
	worth          []float64 // [A]: of the batch that is being proposed
	planned        []int     // [A]: trials in it
	best, second   int       // least means
	families       []siblings
	noise          noiseMeter
	charts         [2]twoSided
	sinceShift     int
	search         search
	thought        bool // mean and variance are of the latest call
	expects        bool // they are of this condition
	oldDefault     float64
}

// shares is the running mean of log(counter/signal) of one action.
type shares struct {
	n    int
	mean float64
}

// NewLSTM gives the maker of learners that run on these weights.
func NewLSTM(w *PolicyWeights, opt PolicyOptions) (NewLearner, error) {
	if err := w.Check(); err != nil {
		return nil, err
	}
	return func(t Task) Learner { return newLSTM(w, opt, t) }, nil
}

func newLSTM(w *PolicyWeights, opt PolicyOptions, t Task) *lstm {
	n := len(t.Set)
	if t.Peers == nil || opt.Without.Peers {
		t.Peers = NewPeers()
	}
	if t.Horizon > 0 {
		opt.Horizon = t.Horizon
	}
	l := &lstm{belief: newBelief(t), opt: opt, net: newPolicyNet(w, n), task: t, features: make([]float64, n*ActionWidth),
		mean: make([]float64, n), variance: make([]float64, n), prior: make([]float64, n), blend: make([]float64, n), doubt: make([]float64, n),
		share: make([]shares, n), lastCall: make([]int, n), families: newSiblings(t.Set), worth: make([]float64, n), planned: make([]int, n),
		search: newSearch()}
	l.trials = make([]actions.Action, 0, n)
	encodeMachine(l.machine[:], t.Bucket, t.Topology, n)
	top := uint8(topsOf(t.Set, t.Bucket.Log2Bytes).channels)
	for i, a := range t.Set {
		encodeAction(l.row(i)[:staticWidth], a, top)
	}
	if len(l.memory.regimes) > 0 {
		l.oldDefault = float64(l.memory.regimes[0].logNs[0])
	}
	return l
}

func (l *lstm) row(i int) []float64 { return l.features[i*ActionWidth : (i+1)*ActionWidth] }

func (l *lstm) Name() string { return NameLSTM }

func (l *lstm) Shift(Diagnosis) {
	if l.arms.samples[0].n > 0 {
		l.oldDefault = l.arms.samples[0].log()
	}
	l.shift()
	clear(l.share)
	clear(l.lastCall)
	l.charts = [2]twoSided{}
	l.sinceShift = 0
	l.search = newSearch()
	l.thought, l.expects = false, false
}

// reference is the log cost that calls are compared with: the default's, of this condition or the one before.
func (l *lstm) reference() float64 {
	if l.arms.samples[0].n > 0 {
		return l.arms.samples[0].log()
	}
	return l.oldDefault
}

// sigma is the standard deviation of a call's log cost.
func (l *lstm) sigma() float64 {
	return math.Sqrt(l.noise.variance(l.task.Peers.noise.variance(priorSigma * priorSigma)))
}

// cost is what the policy takes for the cost of a call.
func (l *lstm) cost(o *state.Observation) state.Ns {
	if l.opt.Without.Signal && o.CounterNs > 0 {
		return o.CounterNs
	}
	return o.SignalNs
}

// Calls of an action that the LSTM reads: the first few, then ever fewer, and those that surprise.
const (
	readFirst    = 8
	readSurprise = 2.5 // standard deviations
)

func (l *lstm) Observe(o state.Observation) {
	seen := o
	seen.SignalNs = l.cost(&o)
	i, ok := l.arms.add(&seen)
	if !ok {
		return
	}
	l.sinceShift++
	l.search.observe(l.sinceShift)
	sigma := l.sigma()
	l.lastCall[i] = l.sinceShift
	s := &l.arms.samples[i]
	x := math.Log(float64(seen.SignalNs))
	if s.n > 1 {
		k := float64(s.n)
		before := (k*s.log() - x) / (k - 1) // close to the mean without this call
		l.noise.add(x-before, s.n-1, sigma)
		l.task.Peers.noise.add(x-before, s.n-1, sigma)
	}
	ref := l.reference()
	if ref == 0 {
		ref = x
	}
	relative := x - ref
	expected, spread := l.mean[i], math.Sqrt(l.variance[i]+sigma*sigma)
	if !l.expects || i == 0 {
		expected, spread = 0, sigma*math.Sqrt2
	}
	surprise := relative - expected
	if i > 0 && s.n == 1 && l.expects {
		l.task.Peers.trust.add(surprise * surprise / (l.prior[i] + 2*sigma*sigma))
		mean, sd := l.model.behind(i, 0)
		l.task.Peers.votes.add(relative, l.net.mean[i], l.prior[i]+2*sigma*sigma, mean, sd*sd+2*sigma*sigma)
	}
	if l.opt.Tape != nil {
		l.opt.Tape.paid(i, relative)
	}
	l.chart(i, &o, s, sigma)
	n := s.n
	if n <= readFirst || n&(n-1) == 0 || math.Abs(surprise) > readSurprise*spread {
		l.read(i, &o, relative, surprise, surprise/spread)
	}
	l.thought = false
}

// read shows one call to the LSTM.
func (l *lstm) read(i int, o *state.Observation, relative, surprise, standardised float64) {
	t := l.token[:]
	clear(t)
	static := l.row(i)[:staticWidth]
	copy(t[:12], static[:12]) // path, family, protocol
	t[12], t[13], t[14] = static[21], static[34], static[37]
	t[15], t[16] = static[39], static[40]
	t[17] = clip(relative, 3)
	if o.CounterNs > 0 && !l.opt.Without.Counter {
		sh := math.Log(float64(o.CounterNs) / float64(o.SignalNs))
		t[18] = clip(relative+sh-l.share[0].mean, 3)
		t[19] = clip(sh-l.share[0].mean, 3)
		t[20] = 1
	}
	t[21] = clip(standardised, 4) / 2
	t[22] = clip(surprise, 2)
	l.writeCharts(t[23:27])
	if l.sinceShift == 1 && len(l.memory.regimes) > 0 {
		t[27] = 1
	}
	t[28] = math.Log1p(float64(l.arms.samples[i].n)) / 3
	t[29] = math.Log1p(float64(l.sinceShift)) / 4
	if l.opt.Tape != nil {
		l.opt.Tape.token(t)
	}
	if !l.opt.Without.Memory {
		l.net.step(t)
	}
}

// think brings mean and variance up to the latest call.
func (l *lstm) think() {
	if l.thought {
		return
	}
	l.thought, l.expects = true, true
	l.writeContext()
	l.writeEvidence()
	l.net.think(l.context[:], l.features)
	l.mean[0], l.variance[0] = 0, 0
	stretch, network := l.task.Peers.trust.stretch(), l.task.Peers.votes.network()
	acts := l.opt.Actor.acts()
	if acts {
		network = 1
	}
	sigma := l.sigma()
	for i := 1; i < len(l.set); i++ {
		l.prior[i] = math.Exp(l.net.logv[i])
	}
	for k := range l.families {
		if acts {
			l.concludeApart(&l.families[k], sigma)
		} else {
			l.conclude(&l.families[k], stretch, sigma)
		}
	}
	for i := 1; i < len(l.set); i++ {
		mean, sd := l.model.behind(i, 0)
		apart := l.mean[i] - mean
		l.blend[i] = mean + network*apart
		l.doubt[i] = network*l.variance[i] + (1-network)*sd*sd + network*(1-network)*apart*apart
	}
	if l.opt.Tape != nil {
		l.opt.Tape.decision(l)
	}
}

// measured is an action's own log cost over the default and the precision of that, under calls' noise sigma; 0 when there
// is none.
func (l *lstm) measured(i int, sigma float64) (relative, precision float64) {
	s, d := &l.arms.samples[i], &l.arms.samples[0]
	if s.n == 0 || d.n == 0 && l.oldDefault == 0 {
		return 0, 0
	}
	v := l.arms.variance(i, sigma)
	if d.n > 0 {
		v += l.arms.variance(0, sigma)
	} else {
		v += driftUnknown * driftUnknown
	}
	return clip(s.log()-l.reference(), 4), 1 / v
}
