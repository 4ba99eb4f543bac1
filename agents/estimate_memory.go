package agents

import (
	"math"
	"slices"

	"dynamiccl/actions"
)

// maxRegimes is how many earlier conditions are remembered: quiet, network load, CPU load and one more.
const maxRegimes = 4

// memory holds what was measured under earlier conditions, so that a condition that comes back need not be learned
// again and a new one starts from what was good before.
type memory struct {
	regimes []regime // latest first; at most maxRegimes
}

// seedCalls is what an earlier run's costs count for among conditions of this one.
const seedCalls = 1000

// regime is what one condition cost. Invariant: the default was measured in it.
type regime struct {
	logNs []float32 // by action; NaN where not measured
	n     []uint16  // samples behind it
	calls int       // that were made in it, all times that it came
}

// sameRegime is the root mean square difference of log costs below which two conditions are taken for one.
const sameRegime = 0.10

// save keeps the measurements of a condition that has just ended.
func (m *memory) save(a *arms) {
	if a.samples[0].n < 2 {
		return
	}
	at, distance := m.nearest(a, (*samples).settled)
	if at < 0 || distance > sameRegime {
		r := regime{logNs: make([]float32, len(a.set)), n: make([]uint16, len(a.set))}
		for i := range r.logNs {
			r.logNs[i] = float32(math.NaN())
		}
		if len(m.regimes) == maxRegimes {
			m.forget()
		}
		m.regimes = append(m.regimes, regime{})
		at = len(m.regimes) - 1
		m.regimes[at] = r
	}
	r := m.regimes[at]
	for i := range a.samples {
		if s := &a.samples[i]; s.n > 0 {
			r.logNs[i], r.n[i] = float32(s.settled()), uint16(min(s.n, window))
		}
	}
	r.calls += a.calls
	copy(m.regimes[1:at+1], m.regimes[:at])
	m.regimes[0] = r
}

// forget drops the condition that lasted least, the oldest of several. A load that comes in steps is many conditions, of which none lasts;
// the one before it, which comes back, must outlive them. Each time all count for a little less, so what does not come back goes at last.
func (m *memory) forget() {
	least := 0
	for i := range m.regimes {
		m.regimes[i].calls -= m.regimes[i].calls / 32
		if m.regimes[i].calls <= m.regimes[least].calls {
			least = i
		}
	}
	m.regimes = slices.Delete(m.regimes, least, least+1)
}

// nearest finds the remembered condition whose costs are most like those measured now, by the actions measured in both.
func (m *memory) nearest(a *arms, log func(*samples) float64) (at int, distance float64) {
	at, distance = -1, math.Inf(1)
	for i, r := range m.regimes {
		sum, n := 0.0, 0
		for j := range a.samples {
			if s := &a.samples[j]; s.n > 0 && r.n[j] > 0 {
				d := log(s) - float64(r.logNs[j])
				sum += d * d
				n++
			}
		}
		if n == 0 {
			continue
		}
		if d := math.Sqrt(sum / float64(n)); d < distance {
			at, distance = i, d
		}
	}
	return at, distance
}

// relative is an action's log cost over the default in a regime; false when it was not measured.
func (r *regime) relative(i int) (float64, bool) {
	if r.n[i] == 0 {
		return 0, false
	}
	return float64(r.logNs[i]) - float64(r.logNs[0]), true
}

// winner is the action that was cheapest in a regime, 0 when that was the default. One sample is no winner: the cheapest
// of many single samples is mostly luck.
func (r *regime) winner() int {
	best := 0
	for i, n := range r.n {
		if n >= 2 && r.logNs[i] < r.logNs[best] {
			best = i
		}
	}
	return best
}

// winners appends the winners of all regimes, latest first, without the default and without repeating one.
func (m *memory) winners(dst []int) []int {
	for i := range m.regimes {
		w := m.regimes[i].winner()
		seen := w == 0
		for _, d := range dst {
			seen = seen || d == w
		}
		if !seen {
			dst = append(dst, w)
		}
	}
	return dst
}

// seed remembers an earlier run's costs (from the store) as a condition. Without the default's cost they say nothing.
func (m *memory) seed(a *arms, prior map[actions.Action]float64) {
	if !(prior[actions.Default] > 0) {
		return
	}
	r := regime{logNs: make([]float32, len(a.set)), n: make([]uint16, len(a.set)), calls: seedCalls}
	for i, action := range a.set {
		if ns := prior[action]; ns > 0 && ns <= float64(maxCostNs) && a.index[action] == i {
			r.logNs[i], r.n[i] = float32(math.Log(ns)), 2
		}
	}
	m.regimes = append(m.regimes, r)
}

// likely is the remembered condition most like the present one; the latest when nothing is measured yet, nil when none.
func (m *memory) likely(a *arms) *regime {
	if len(m.regimes) == 0 {
		return nil
	}
	at, _ := m.nearest(a, (*samples).log)
	return &m.regimes[max(at, 0)]
}

// How far relative log costs stray between conditions: the more, the more costs themselves differ. Quiet against
// network load on the 2-node socket tables: costs differ by 0.1 to 0.6, relative costs by 0.06 to 0.24.
const (
	driftShare   = 0.6
	driftLeast   = 0.05
	driftMost    = 0.6
	driftUnknown = 0.2 // nothing measured yet
)

// drift is how far relative log costs may have strayed since the likely condition, as a standard deviation.
func (m *memory) drift(a *arms) float64 {
	_, distance := m.nearest(a, (*samples).log)
	if math.IsInf(distance, 1) {
		return driftUnknown
	}
	return min(driftMost, max(driftLeast, driftShare*distance))
}

// refresh conditions the model on what is measured now and, more loosely, on the most similar remembered condition. It is the guard's, who
// asks what a trial may lose and which one is hopeless. How relative costs have moved since (moved, of learners) is left out: drift takes
// in how far, and the first measurements pull those beside them along. With it nothing changes on the recorded tables beyond what seeds
// differ by, the mean cost over the oracle's by 0.003 at most in either direction (10 tables over sockets, 3 over NVLink, three learners).
func (m *costModel) refresh(a *arms, mem *memory) {
	m.reset()
	sigma := a.sigma()
	if r := mem.likely(a); r != nil {
		drift := mem.drift(a)
		for i := 1; i < m.n; i++ {
			if relative, ok := r.relative(i); ok {
				m.observe(i, relative, drift*drift+sigma*sigma/float64(r.n[i]))
			}
		}
	}
	if a.samples[0].n == 0 {
		return
	}
	base := a.samples[0].log()
	for i := 1; i < m.n; i++ {
		if a.samples[i].n > 0 {
			m.observe(i, a.samples[i].log()-base, a.variance(i, sigma))
		}
	}
}
