package agents

import "dynamiccl/actions"

// How relative log costs have moved since a remembered condition: a step that all actions share, because the default has moved too,
// and of kernels on GIN how steep their cost lies over CTAs and over the contexts that these use. Where NICs come to have enough to do with
// few, each octave more costs more than it did, and less where they have room again. So calls of both ends move what is remembered
// of all between.
const (
	movedStep = iota
	movedCTAs
	movedContexts
	numMoved
)

// moved estimates that from actions measured in both conditions (Bayesian linear regression).
type moved struct {
	mean [numMoved]float64
	cov  [numMoved][numMoved]float64
	each float64 // variance of what strays of each action for itself
}

// driftEach is the part of memory's drift, as a standard deviation, that is each action's own. The rest is the step that all share, and
// on GIN as much an octave of CTAs and of contexts: half as much and twice do the same on made-up surfaces (models/contexts_test.go).
const driftEach = 0.7

// newMoved knows nothing but how far relative costs may have strayed.
func newMoved(drift float64) moved {
	m := moved{each: driftEach * driftEach * drift * drift}
	for i := range m.cov {
		m.cov[i][i] = drift * drift
	}
	return m
}

// along is how much of each part an action has.
func along(f *features) [numMoved]float64 {
	if f.action.Path != actions.PathGIN {
		return [numMoved]float64{movedStep: 1}
	}
	return [numMoved]float64{movedStep: 1, movedCTAs: f.octave, movedContexts: min(f.octave, 0) - f.shared} // a CTA has no more than one context
}

// of gives how far an action's relative log cost has moved, and the variance of what else it may have strayed.
func (m *moved) of(f *features) (by, variance float64) {
	x := along(f)
	for i := range x {
		by += x[i] * m.mean[i]
		for j := range x {
			variance += x[i] * m.cov[i][j] * x[j]
		}
	}
	return by, variance + m.each
}

// observe takes in how far an action's relative log cost was seen to move, and the variance of the noise in that.
func (m *moved) observe(f *features, by, noise float64) {
	expected, variance := m.of(f)
	x, total := along(f), variance+noise
	var gain [numMoved]float64
	for i := range x {
		for j := range x {
			gain[i] += m.cov[i][j] * x[j] / total
		}
	}
	for i := range x {
		m.mean[i] += gain[i] * (by - expected)
		for j := range x {
			m.cov[i][j] -= gain[i] * gain[j] * total
		}
	}
}
