package agents

import (
	"math"

	"gonum.org/v1/gonum/floats"

	"dynamiccl/actions"
)

// belief is known and a model of all actions: what the model-based learners share. Index 0 is the default here too: its
// log cost against what was measured of it, so that its own doubt counts.
type belief struct {
	known
	model  *costModel
	others *peerEvidence
	times  []uint8 // that an action is in the batch under way
}

func newBelief(t Task) belief {
	b := belief{known: newKnown(t), model: newCostModel(t.Set, t.Bucket), times: make([]uint8, len(t.Set))}
	b.model.expect(t)
	b.others = newPeerEvidence(t, b.arms, b.model)
	return b
}

// What the topology lets expect before anything is measured. Between nodes a channel or two saturate the wire, so that
// few channels are no ruin, and AllReduce's latency grows with the ring's steps but with the logarithm of a tree's.
// Inside one node a tree is a chain. Round numbers; on the recorded tables the first two were worth 0.003 each of the
// oracle's cost over 64 calls, the third nothing.
const (
	netOctaveShare = 0.3 // of meanOctave that is left
	netRing        = 0.2
	nodeTree       = 0.2
)

// expect moves the prior means to what is expected of the topology.
func (m *costModel) expect(t Task) {
	w := bandwidthBound(t.Bucket.Log2Bytes)
	for i := range m.feat {
		f := &m.feat[i]
		switch {
		case f.action.Path != actions.PathCollective:
			f.mean += kernelMean(f.action, t.Bucket, t.Topology.Shape)
		case t.Topology.Shape.Nodes > 1:
			f.mean -= (1 - netOctaveShare) * meanOctave * w * f.octave
			if f.action.Algorithm == actions.Ring && t.Bucket.Collective.Plain() == actions.AllReduce {
				f.mean += netRing * (1 - w)
			}
		case t.Topology.Shape.Nodes == 1 && f.action.Algorithm == actions.Tree:
			f.mean += nodeTree
		}
	}
	m.reset()
}

// refresh conditions the model on what is measured here, more loosely on the most similar remembered condition and on
// what other buckets measured. Every action is conditioned on once, on the mean of the three weighted by precision.
func (b *belief) refresh(sigma float64) {
	m := b.model
	m.reset()
	b.others.gather(sigma)
	measured := b.arms.samples[0].n > 0
	base, doubt := 0.0, 0.0
	if measured {
		base, doubt = b.arms.samples[0].log(), b.arms.variance(0, sigma)
		floats.AddConst(doubt, m.cov)
	}
	r, since := b.recall(base, doubt, sigma)
	for i := 1; i < m.n; i++ {
		precision := b.others.precision[i]
		sum := precision * b.others.relative[i]
		if r != nil {
			if relative, ok := r.relative(i); ok {
				by, strayed := since.of(&m.feat[i])
				p := 1 / (strayed + sigma*sigma/float64(r.n[i]))
				precision += p
				sum += p * (relative + by)
			}
		}
		if measured && b.arms.samples[i].n > 0 {
			p := 1 / b.arms.variance(i, sigma)
			precision += p
			sum += p * (b.arms.samples[i].log() - base)
		}
		if precision > 0 {
			m.condition(i, sum/precision-m.mean[i], 1/precision)
		}
	}
}

// recall gives the remembered condition most like the present one, nil when there is none, and how relative costs have moved since, by
// what was measured in both.
func (b *belief) recall(base, doubt, sigma float64) (r *regime, since moved) {
	r = b.memory.likely(b.arms)
	if r == nil {
		return nil, since
	}
	since = newMoved(b.memory.drift(b.arms))
	for i := 1; b.arms.samples[0].n > 0 && i < len(b.set); i++ {
		if relative, ok := r.relative(i); ok && b.arms.samples[i].n > 0 {
			since.observe(&b.model.feat[i], b.arms.samples[i].log()-base-relative, sigma*sigma/float64(r.n[i])+b.arms.variance(i, sigma)+doubt)
		}
	}
	return r, since
}

// least is the action of the least expected cost among those measured in this condition; the default when none is.
func (b *belief) least() int {
	best := 0
	for i := range b.set {
		if b.arms.samples[i].n > 0 && b.model.mean[i] < b.model.mean[best] {
			best = i
		}
	}
	return best
}

// behind is how much more an action is expected to cost than another, and the standard deviation of that: what both
// have in common is no doubt between them.
func (m *costModel) behind(i, best int) (mean, sd float64) {
	variance := m.cov[i*m.n+i] + m.cov[best*m.n+best] - 2*m.cov[i*m.n+best]
	return m.mean[i] - m.mean[best], math.Sqrt(max(0, variance))
}

// begin starts a batch, include adds to it.
func (b *belief) begin() []actions.Action {
	clear(b.times)
	return b.trials[:0]
}

func (b *belief) include(trials []actions.Action, i int) []actions.Action {
	b.times[i]++
	return append(trials, b.set[i])
}

// mayRepeat keeps an action from filling a batch before there is evidence: one that the model expects to be the best
// may cost five times the default.
func (b *belief) mayRepeat(i int) bool { return int(b.times[i]) <= b.arms.samples[i].n }

// A gain over a choice that ran for long, this great, is suspect as long as it is new: rather has something changed.
// Calls of the old choice then show it to the learner and, which knows what to expect of them, to the detector.
const (
	suspectGain  = 0.3 // log cost
	suspectCalls = 8   // that make a choice an old one, and end the suspicion
)

// suspect gives the old choice to measure again in turns with the new best, false when there is nothing to suspect.
func (b *belief) suspect(best int) (old int, yes bool) {
	for i := range b.set {
		if b.arms.samples[i].n > b.arms.samples[old].n {
			old = i
		}
	}
	s, o := &b.arms.samples[best], &b.arms.samples[old]
	return old, s.n > 0 && s.n < suspectCalls && o.n >= suspectCalls && o.log()-s.log() > suspectGain && b.arms.calls%2 == 0
}

// doubtsDefault reports whether the default needs another call before the best is tried on: everything is compared with
// it, and one delayed call of it makes a bad choice look good for as long as it is tried. Two calls that agree are
// enough; of two that do not, a third says which was delayed.
func (b *belief) doubtsDefault(best int) bool {
	s := &b.arms.samples[0]
	if best == 0 || b.arms.samples[best].n < doubtAfter || s.n >= guardMinDefault {
		return false
	}
	return s.n < 2 || b.defaultsDisagree()
}

// defaultsDisagree reports that of the first two calls of the default one was delayed.
func (b *belief) defaultsDisagree() bool {
	s := &b.arms.samples[0]
	return math.Abs(float64(s.logs[0]-s.logs[1])) > doubtSigmas*b.arms.sigma()
}

// Calls of the best after which the default is doubted, and how far its first two calls may lie apart. On the recorded
// tables at 15% noise this takes the worst bucket's cost over the default from 2.4 to 1.2 and costs 0.002 of the oracle's.
const (
	doubtAfter  = 2
	doubtSigmas = 3
)

// settle ends a batch: where it has room, the best action once more until guards let it into force.
func (b *belief) settle(trials []actions.Action, best, maxTrials int) (actions.Action, []actions.Action) {
	if len(trials) < maxTrials && b.pursue(best) {
		trials = append(trials, b.set[best])
	}
	if old, yes := b.suspect(best); yes && len(trials) > 0 {
		trials[0] = b.set[old]
	}
	if len(trials) > 0 && b.doubtsDefault(best) {
		trials[0] = b.set[0]
	}
	b.trials = trials
	return b.set[b.base], trials
}
