package tunersim

import (
	"math"
	"math/rand/v2"
	"slices"

	"dynamiccl/actions"
)

// jitter are the smooth log factors of an augmentation.
type jitter struct {
	scale     float64
	algorithm [actions.NumAlgorithms]float64
	protocol  [actions.NumProtocols]float64
	pair      PairValues
	path      [actions.NumPaths]float64
	backend   [actions.NumBackends]float64
	byBytes   PairValues // an octave away from the middle size
	byChannel PairValues // an octave away from 8 channels
	entry     float64
	counter   float64
}

// Jitter gives another table like t: costs times smooth random factors by algorithm, protocol, pair and path, tilted over
// sizes and channels, with noise on every entry, for choices that are the same measure 5 to 20% apart. The entries stay
// the same; the default moves with the entry that it costs most nearly the same as. Counters move with their signals.
// Strength 1 is a standard deviation of about 15% in what one choice gains on another; 0 is a copy.
func Jitter(t *Table, strength float64, rng *rand.Rand) *Table {
	r := draw{rng}
	normal := func(sigma float64) float64 { return strength * sigma * r.NormFloat64() }
	j := jitter{scale: normal(0.3), entry: 0.06 * strength, counter: normal(0.1)}
	for i := range j.algorithm {
		j.algorithm[i] = normal(0.08)
	}
	for i := range j.protocol {
		j.protocol[i] = normal(0.08)
	}
	for i := range j.path {
		j.path[i] = normal(0.1)
	}
	for i := range j.backend {
		j.backend[i] = normal(0.05)
	}
	for i := range j.pair {
		j.pair[i], j.byBytes[i], j.byChannel[i] = normal(0.06), normal(0.01), normal(0.02)
	}
	out := *t
	out.points = make([]*point, len(t.points))
	for i, p := range t.points {
		out.points[i] = j.point(p, r)
	}
	return &out
}

func (j *jitter) factor(p *point, a actions.Action, r draw) float64 {
	f := j.scale + j.path[a.Path] + j.backend[a.Backend]
	pair := 0
	if a.Path == actions.PathCollective {
		pair = pairOf(a.Algorithm, a.Protocol)
		f += j.algorithm[a.Algorithm] + j.protocol[a.Protocol] + j.pair[pair]
	}
	f += j.byBytes[pair] * (p.log2Bytes - 17)
	if a.Channels > 0 {
		f += j.byChannel[pair] * (math.Log2(float64(a.Channels)) - 3)
	}
	return math.Exp(f + j.entry*r.NormFloat64())
}

func (j *jitter) point(p *point, r draw) *point {
	q := *p
	q.costNs = make(map[actions.Action]float64, len(p.costNs))
	q.order = slices.Clone(p.order)
	if p.counterNs != nil {
		q.counterNs = make(map[actions.Action]float64, len(p.counterNs))
	}
	nearest, twin := math.Inf(1), actions.Default
	// move sets a signal and takes the counter with it, never beyond it; strength 0 leaves both as they were.
	move := func(a actions.Action, before, after float64) float64 {
		if counter, ok := p.counterNs[a]; ok {
			q.counterNs[a] = min(counter*(after/before)*math.Exp(j.counter), after)
		}
		return after
	}
	for _, a := range p.order {
		if d := math.Abs(math.Log(p.costNs[a] / p.defaultNs)); d < nearest {
			nearest, twin = d, a
		}
		q.costNs[a] = move(a, p.costNs[a], p.costNs[a]*j.factor(p, a, r))
	}
	symmetric := actions.Action{Path: actions.PathSymmetric}
	if ns, ok := p.costNs[symmetric]; ok {
		q.costNs[symmetric] = move(symmetric, ns, ns*j.factor(p, symmetric, r))
	}
	f := j.factor(p, actions.Default, r)
	if twin != actions.Default {
		f = q.costNs[twin] / p.costNs[twin] * math.Exp(j.entry*r.NormFloat64())
	}
	q.defaultNs = move(actions.Default, p.defaultNs, p.defaultNs*f)
	q.best, q.bestNs = actions.Default, q.defaultNs
	for _, a := range q.order {
		if ns := q.costNs[a]; ns < q.bestNs {
			q.best, q.bestNs = a, ns
		}
	}
	return &q
}
