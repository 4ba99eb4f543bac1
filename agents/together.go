package agents

import "math"

// Together watches all sizes of one way of puts, beside the detectors of each. What slows a way down slows all of its sizes, and a program
// has four of them or more, so each detector sees but a part of what there is: in a sum over all of their residuals a constant of 1.3 us
// is found in half as many puts. It is for what begins: what is open is followed by the diagnosis.
type Together struct {
	design Design
	chart  chart
}

// togetherNoise is what such sums are taken to vary more than independent ones, as putNoise: sizes follow each other in one batch of calls.
const togetherNoise = 2

// NewTogether makes the watch over one way.
func NewTogether(d Design) *Together {
	t := &Together{design: d}
	t.chart.noise.least = togetherNoise
	return t
}

// Observe takes in the put that a detector has just answered with a, and gives the alarm that there is: the detector's, or one of all
// sizes, in which this one begins anew. begins: no change is open.
func (t *Together) Observe(d *Detector, a Alarm, begins bool) Alarm {
	switch {
	case a.Raised || !begins:
		t.chart.restart()
		return a
	case !d.latest.known:
		return a
	}
	r, c := &d.latest, &t.chart
	c.judge(r.z, t.design.k, t.design.signalH, r.n)
	c.up.add(residual{})
	c.down.add(residual{})
	up, sum, calls := true, c.up.sum, c.up.calls
	if c.down.sum > c.up.sum {
		up, sum, calls = false, c.down.sum, c.down.calls
	}
	if sum < c.limit {
		return a
	}
	c.restart()
	return d.trip(up, calls)
}

// Stat is how near an alarm is.
func (t *Together) Stat() float64 { return math.Min(1, t.chart.height()) }
