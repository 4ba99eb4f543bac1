package agents

import (
	"math"

	"dynamiccl/actions"
)

// Expecter is a learner that can say what it expects of an action before it measures it.
type Expecter interface {
	// Expects gives mean and standard deviation of an action's log cost over the default's, before what was measured of the
	// action itself is added; false where it expects nothing in this condition. It changes nothing.
	Expects(a actions.Action) (relative, sd float64, ok bool)
}

// Expects is of the latest decision: a look from outside must not make the policy think again, for that would change
// what surprises it.
func (l *lstm) Expects(a actions.Action) (relative, sd float64, ok bool) {
	i, known := l.arms.index[a]
	if !known || i == 0 || !l.expects {
		return 0, 0, false
	}
	return l.net.mean[i], math.Sqrt(l.prior[i] * l.task.Peers.trust.stretch()), true
}

// Expects is the learner's, where it is an Expecter.
func (g *Guard) Expects(a actions.Action) (relative, sd float64, ok bool) {
	e, can := g.learner.(Expecter)
	if !can {
		return 0, 0, false
	}
	return e.Expects(a)
}
