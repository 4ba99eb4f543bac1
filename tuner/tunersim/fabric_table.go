package tunersim

import (
	"math/rand/v2"
	"slices"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// Table is a sweep of the machine in a condition, as a benchmark would record it: every bucket under NCCL's default and
// every forced choice, each with the scatter that real medians have, counter and signal both. Conditions of one machine
// share its idiosyncrasies; the scatter comes from rng. Buckets that are given twice are measured once; no buckets is a
// table without points.
func (m Machine) Table(c Condition, buckets []state.Bucket, rng *rand.Rand) *Table {
	t := &Table{Machine: m.Name, NCCL: m.NCCL, Shape: m.Shape, NICs: m.ShownNICs, Condition: c.Name}
	var seen [actions.NumAsked][state.NumBuckets + 16]bool
	for _, b := range buckets {
		if b.Collective < actions.NumAsked && b.Log2Bytes < 63 && !seen[b.Collective][b.Log2Bytes] {
			seen[b.Collective][b.Log2Bytes] = true
			t.points = append(t.points, m.point(&c, b, rng))
		}
	}
	slices.SortFunc(t.points, comparePoints)
	return t
}

// point measures one bucket.
func (m *Machine) point(cond *Condition, b state.Bucket, rng *rand.Rand) *point {
	c := callOf(b.Collective, 1<<b.Log2Bytes)
	set := m.grid[b.Collective]
	p := &point{collective: b.Collective, bytes: 1 << b.Log2Bytes, log2Bytes: c.log2Bytes, defaults: 1,
		costNs: make(map[actions.Action]float64, len(set)), counterNs: make(map[actions.Action]float64, len(set)+1),
		order: make([]actions.Action, 0, len(set))}
	r := draw{rng}
	var waits [numPairs]float64
	if cond.CPUWait > 0 {
		for i := range waits {
			waits[i] = r.logNormal(1, waitSigma)
		}
	}
	own := m.choose(c)
	costs, _ := m.collective(cond, c, own)
	def := m.measure(r, costs, waits[pairOf(own.Algorithm, own.Protocol)])
	p.counterNs[actions.Default] = def.CounterNs
	p.best, p.bestNs, p.defaultNs = actions.Default, def.SignalNs, def.SignalNs
	for _, a := range set {
		costs, ok := m.parts(cond, c, a)
		if !ok {
			continue
		}
		cost := m.measure(r, costs, waits[pairOf(a.Algorithm, a.Protocol)])
		p.costNs[a], p.counterNs[a] = cost.SignalNs, cost.CounterNs
		p.order = append(p.order, a)
		if cost.SignalNs < p.bestNs {
			p.best, p.bestNs = a, cost.SignalNs
		}
	}
	return p
}

// Scatter of the wait for cores, of an algorithm and protocol in a bucket and of one entry: under CPU load the same
// choice was 8 to 24 ms, and less different between channels than between pairs (shared measurements, cpu-load).
const (
	waitSigma      = 0.3
	waitEntrySigma = 0.2
)

// measure adds a recorded median's scatter, the same on counter and signal.
func (m *Machine) measure(r draw, p parts, wait float64) Cost {
	if p.waitNs > 0 {
		wait = r.logNormal(wait, waitEntrySigma)
	}
	cost := p.cost(m, wait)
	f := r.logNormal(1, m.scatter.sigma)
	if r.chance(m.scatter.outlierProb) {
		f *= 1 + m.scatter.outlierLog*r.ExpFloat64()
	}
	cost.CounterNs, cost.SignalNs = cost.CounterNs*f, cost.SignalNs*f
	return cost
}
