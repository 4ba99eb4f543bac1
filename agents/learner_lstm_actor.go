package agents

import (
	"math"
	"slices"
)

// Actor lets the policy choose as actor-critic training taught it to, in place of by the knowledge gradient: the action of
// least expected cost, each taken lower by part of its doubt. Expected is what the network says and the action's own
// measurements, without the rules outside of the network: a gradient through choices needs the probabilities that they
// were made with, and what was trained is what runs. The zero value is the knowledge gradient.
type Actor struct {
	Optimism    float64 // standard deviations that expected log costs are taken lower by; 0: the knowledge gradient
	Temperature float64 // of the softmax that training draws actions from, in log cost; 0: the best is taken
}

func (a Actor) acts() bool { return a.Optimism > 0 }

// concludeApart is conclude as in the graph that an actor learns in.
func (l *lstm) concludeApart(f *siblings, sigma float64) {
	for _, i := range f.members {
		relative, precision := l.measured(i, sigma)
		precision *= l.net.trust[i]
		prior := 1 / l.prior[i]
		l.variance[i] = 1 / (prior + precision)
		l.mean[i] = l.variance[i] * (prior*l.net.mean[i] + precision*relative)
	}
}

// draw takes an action by chance, more often the more it is worth.
func (l *lstm) draw() int {
	if l.opt.Tape != nil && len(l.trials) == 0 {
		l.opt.Tape.drawn()
	}
	most, sum := slices.Max(l.worth), 0.0
	chance := func(w float64) float64 { return math.Exp((w - most) / l.opt.Actor.Temperature) }
	for _, w := range l.worth {
		sum += chance(w)
	}
	at := sum * l.task.Rand.Float64()
	for i, w := range l.worth {
		if at -= chance(w); at < 0 {
			return i
		}
	}
	return 0
}
