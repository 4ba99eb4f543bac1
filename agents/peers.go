package agents

import "dynamiccl/state"

// Peers is what the learners of one communicator's buckets know of each other's measurements: what is good at 256 KiB
// is seldom bad at 1 MiB. One goroutine at a time.
type Peers struct {
	arms  map[state.Bucket]*arms
	order []state.Bucket // of joining, so that nothing depends on map order
	gone  int            // calls that learners saw whose place another one took
	trust calibration    // of the policy's predictions
	noise noiseMeter
	votes votes
}

// calibration compares predictions with the first measurement of each action. A machine unlike all that the policy was
// trained on shows in misses of many standard deviations; then its uncertainty is stretched until they fit.
type calibration struct {
	sum float64 // of squared misses, in predicted variances
	n   float64
}

// calibrationWeight is how many predictions that were right the policy is credited with, and calibrationLimit the
// greatest miss, in variances, that counts: a delayed call is no evidence against it.
const (
	calibrationWeight = 4
	calibrationLimit  = 16
)

func (c *calibration) add(squared float64) {
	c.sum += min(squared, calibrationLimit)
	c.n++
}

// stretch is the factor on variances, at least 1.
func (c *calibration) stretch() float64 {
	return max(1, (c.sum+calibrationWeight)/(c.n+calibrationWeight))
}

// NewPeers is for one communicator.
func NewPeers() *Peers { return &Peers{arms: map[state.Bucket]*arms{}} }

// join makes a bucket's measurements known; they replace those of an earlier learner of the bucket.
func (p *Peers) join(b state.Bucket, a *arms) {
	if p == nil {
		return
	}
	if old, known := p.arms[b]; known {
		p.gone += old.ever
	} else {
		p.order = append(p.order, b)
	}
	p.arms[b] = a
}
