package agents

import (
	"errors"
	"fmt"
	"math"
)

// ErrBadParams is returned for detector parameters that describe no usable detector.
var ErrBadParams = errors.New("bad detector parameters")

// Params states a detector the way people think of it. The thresholds follow from it (NewDesign).
type Params struct {
	// RunLengthCalls is the in-control run length (ARL0): mean number of calls of a bucket between false alarms of the
	// whole detector, both latencies and both directions together, for independent residuals. Others raise the thresholds
	// by what is measured of them (sumNoise), which keeps the order of magnitude and no more.
	RunLengthCalls float64
	// ShiftRatio is the step to be found soonest, 1.08: +8%.
	ShiftRatio float64
	// NoiseRatio is the noise (standard deviation over mean) at which that step must be found. Where more noise is
	// measured, the step to be found grows with it. Less noise counts as this much: a change that is small against
	// ShiftRatio is worth no alarm, however clearly it is seen.
	NoiseRatio float64
}

// DefaultParams: one false alarm in 100,000 calls, +8% at 5% noise.
func DefaultParams() Params {
	return Params{RunLengthCalls: 100_000, ShiftRatio: 1.08, NoiseRatio: 0.05}
}

// signalShare is the part of the false-alarm budget that the signal's chart gets; the counter's chart gets the rest. The
// signal is what a choice is charged, so it must be the quick one; equal shares would cost it half a call of delay.
const signalShare = 0.8

// winsorAt bounds a standardised residual. A single spike of any height then moves a chart by a third of its
// threshold, and a sustained step alarms within four calls (default parameters).
const winsorAt = 3.0

// Design is a detector's computed constants. It is immutable: share it.
type Design struct {
	params      Params
	k           float64 // reference value, half the shift in standard deviations
	signalH     float64 // thresholds, standard deviations
	counterH    float64
	minLogScale float64 // smallest standard deviation of log residuals that is believed
}

// NewDesign has reference value and thresholds of parameters. Those of DefaultParams, which every core has, are computed already.
func NewDesign(p Params) (Design, error) {
	if p == DefaultParams() {
		return Design{params: p, k: 0.76961041136128394, signalH: 6.8827773702651029, counterH: 7.7411534959992423, minLogScale: 0.05}, nil
	}
	return designFor(p)
}

// designFor computes a design. Each chart has two sides and rates of false alarms add up, so a chart with share q of the
// budget needs ARL0/q on both sides together and twice that on each.
func designFor(p Params) (Design, error) {
	shift := math.Log(p.ShiftRatio) / p.NoiseRatio
	switch {
	case !(p.RunLengthCalls >= 100 && p.RunLengthCalls <= 1e9):
		return Design{}, fmt.Errorf("run length %v calls: must be 100 to 1e9: %w", p.RunLengthCalls, ErrBadParams)
	case !(p.NoiseRatio > 0 && p.NoiseRatio <= 1):
		return Design{}, fmt.Errorf("noise %v: must be above 0 and at most 1 (0.05 is 5%%): %w", p.NoiseRatio, ErrBadParams)
	case !(shift >= 0.25 && shift <= winsorAt):
		return Design{}, fmt.Errorf("shift %v at noise %v is %.3g standard deviations: must be 0.25 to %g: %w",
			p.ShiftRatio, p.NoiseRatio, shift, winsorAt, ErrBadParams)
	}
	d := Design{params: p, k: shift / 2, minLogScale: p.NoiseRatio}
	d.signalH = thresholdFor(2*p.RunLengthCalls/signalShare, d.k)
	d.counterH = thresholdFor(2*p.RunLengthCalls/(1-signalShare), d.k)
	return d, nil
}

// chainStates is the number of states of the Markov chain. 120 is within 2% of 400 states (cusum_test.go).
const chainStates = 120

// thresholdFor gives the smallest h whose one-sided run length reaches calls, by bisection: run length grows with h. It
// comes from below, because run lengths beyond 1e15 are lost in rounding. 20 halvings leave under 1e-5.
func thresholdFor(calls, k float64) float64 {
	reaches := func(h float64) bool { return newChain(h, k, 0, winsorAt, chainStates).fromZero() >= calls }
	lo, hi := 0.0, 1.0
	for !reaches(hi) {
		lo, hi = hi, hi*1.25
	}
	for range 20 {
		if mid := (lo + hi) / 2; reaches(mid) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return hi
}

// chain is the Markov chain of a one-sided CUSUM on residuals that are normal with mean mu and standard deviation 1,
// cut off at +-winsor: Brook and Evans, An approach to the probability distribution of cusum run length, Biometrika 59
// (1972). State 0 is "at zero", state j the interval of width step around j*step, alarm at h.
type chain struct {
	n    int
	p    []float64 // [n*n] row-major transition probabilities among states without alarm
	runs []float64 // [n] mean calls until alarm, by state
}

func newChain(h, k, mu, winsor float64, n int) *chain {
	c := &chain{n: n, p: make([]float64, n*n), runs: make([]float64, n)}
	step := 2 * h / float64(2*n-1)
	below := func(x float64) float64 { // P(residual < x)
		switch {
		case x <= -winsor:
			return 0
		case x > winsor:
			return 1
		}
		return normalCDF(x - mu)
	}
	// Both depend on how far apart two states are, and on nothing else of them.
	reached, within := make([]float64, 2*n-1), make([]float64, 2*n-1) // P(at most the upper end of state i+apart), P(in it)
	for apart := 1 - n; apart < n; apart++ {
		upper := (float64(apart)+0.5)*step + k
		reached[apart+n-1] = below(upper)
		within[apart+n-1] = below(upper) - below(upper-step)
	}
	for i := range n {
		copy(c.p[i*n:i*n+n], within[n-1-i:])
		c.p[i*n] = reached[n-1-i]
	}
	c.solve()
	return c
}

// solve finds runs = 1 + p*runs. I - p is an M-matrix (rows of p sum to less than 1 or lead to rows that do), so
// elimination needs no pivoting.
func (c *chain) solve() {
	n := c.n
	a := make([]float64, n*n)
	for i, p := range c.p {
		a[i] = -p
	}
	for i := range n {
		a[i*n+i]++
		c.runs[i] = 1
	}
	for col := range n {
		pivot := a[col*n+col : col*n+n]
		for len(pivot) > 1 && pivot[len(pivot)-1] == 0 { // residuals are cut off, so nothing leads that far
			pivot = pivot[:len(pivot)-1]
		}
		for row := col + 1; row < n; row++ {
			r := a[row*n+col:][:len(pivot)]
			f := r[0] / pivot[0]
			if f == 0 {
				continue
			}
			for j, p := range pivot {
				r[j] -= f * p
			}
			c.runs[row] -= f * c.runs[col]
		}
	}
	for row := n - 1; row >= 0; row-- {
		for j := row + 1; j < n; j++ {
			c.runs[row] -= a[row*n+j] * c.runs[j]
		}
		c.runs[row] /= a[row*n+row]
	}
}

// fromZero is the mean run length of a chart that starts at zero.
func (c *chain) fromZero() float64 { return c.runs[0] }

func normalCDF(x float64) float64 { return 0.5 * math.Erfc(-x/math.Sqrt2) }
