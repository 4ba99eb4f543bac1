package agents

import "math"

// votes weigh the network against the belief that it starts from, by how well each foretold what actions cost when they
// were measured first on this communicator (Bayesian model averaging). A machine like those of training makes the network
// count; on one that misleads it the plain belief does.
type votes struct {
	lead float64 // log likelihood of what was measured under the network over that under the belief
}

const (
	voteMemory = 0.98 // of the lead, a vote later: what was right long ago is no proof
	voteLimit  = 2.0  // greatest lead of one measurement; a delayed call decides nothing
)

func (v *votes) add(x, mean, variance, otherMean, otherVariance float64) {
	lead := logDensity(x, mean, variance) - logDensity(x, otherMean, otherVariance)
	v.lead = voteMemory*v.lead + clip(lead, voteLimit)
}

// network is the network's weight, 0 to 1.
func (v *votes) network() float64 { return sigmoid(v.lead) }

func logDensity(x, mean, variance float64) float64 {
	d := x - mean
	return -(math.Log(variance) + d*d/variance) / 2
}
