package agents

import (
	"math"
	"slices"
)

// warmUpCalls is how many calls of an action make its first expectation. Fewer make alarms out of bad luck, more leave
// an action unwatched for longer; cusum_test.go prints what 16 costs.
const warmUpCalls = 16

// memoryCalls bounds how many calls an expectation averages, so that drift too slow to matter is followed.
const memoryCalls = 2048

// widening raises the reference value by widening/n while an expectation rests on n calls only: its error is shared by
// all residuals judged against it and would otherwise add up like a shift.
const widening = 4.0

// middleStep is by how many standard deviations of one call a median moves, over the calls so far: 1/(2f), f the density of normal noise
// there (Robbins and Monro, A stochastic approximation method, Ann. Math. Stat. 22 (1951)).
const middleStep = 1.2533

// level is what was learnt of calls.
type level struct {
	n        float64 // calls in mean and variance; below warmUpCalls: still warming up
	mean     float64 // of log ns
	variance float64 // sample variance of log ns
	middle   float64 // median of log ns: what medians are held against, for a mean of skewed noise lies above it
}

// expectation is what log latency is expected to be for one action: mean and variance, learned from the calls
// themselves. Calls are held back while the chart is away from zero and taken in when it returns, so that a shift in
// progress does not teach the expectation to expect it (a plain self-starting CUSUM misses most early shifts).
type expectation struct {
	level
	held     float64 // calls held back
	heldSum  float64 // of deviations from mean
	heldSq   float64
	heldOver float64 // of them, those above the middle less those below
	heldIn   uint32  // excursion of the chart that the held calls belong to
	warm     [warmUpCalls]float64
}

func (e *level) ready() bool { return e.n >= warmUpCalls }

// restore expects again what was expected before a fault, as if a first few calls had said so: much may have changed since.
func (e *level) restore(before level) {
	if before.ready() {
		*e = before
		e.n = warmUpCalls
	}
}

// warmUp takes in one of the first calls. The last of them sets mean and variance, spikes pulled in to 4 robust standard
// deviations first: one 5x spike among 16 calls would otherwise blind the detector for hundreds of calls.
func (e *expectation) warmUp(x float64) {
	e.warm[int(e.n)] = x
	e.n++
	if !e.ready() {
		return
	}
	buf := e.warm
	mid := medianOf(buf[:])
	for i, v := range e.warm {
		buf[i] = math.Abs(v - mid)
	}
	reach := 4 * sigmaPerMAD * medianOf(buf[:])
	sum, sq := 0.0, 0.0
	for _, v := range e.warm {
		d := clamp(v-mid, reach)
		sum += d
		sq += d * d
	}
	e.mean, e.middle = mid+sum/warmUpCalls, mid
	e.variance = (sq - sum*sum/warmUpCalls) / (warmUpCalls - 1)
}

// standardise gives the residual in standard deviations, cut off at winsorAt, and the deviation in log units cut off at
// the same place. The prediction error of a mean of n calls and the t distribution of a scale from n calls are taken out.
func (e *expectation) standardise(x, minScale float64) (z, deviation float64) {
	scale := math.Max(math.Sqrt(e.variance), minScale)
	predict := math.Sqrt((e.n + 1) / e.n)
	t := (x - e.mean) / (scale * predict)
	return clamp(normalFromT(t, e.n-1), winsorAt), clamp(x-e.mean, winsorAt*scale*predict)
}

func (e *expectation) hold(x, deviation float64, excursion uint32) {
	e.held++
	e.heldSum += deviation
	e.heldSq += deviation * deviation
	if x != e.middle {
		e.heldOver += math.Copysign(1, x-e.middle)
	}
	e.heldIn = excursion
}

// takeIn merges the held calls (Chan, Golub and LeVeque's pairwise update).
func (e *expectation) takeIn() {
	n := e.n + e.held
	shift := e.heldSum / e.held
	squares := e.variance*(e.n-1) + e.heldSq - e.held*shift*shift + shift*shift*e.n*e.held/n
	e.mean += shift * e.held / n
	e.middle += middleStep * math.Sqrt(e.variance) * e.heldOver / n
	e.variance = squares / (n - 1)
	e.n = math.Min(n, memoryCalls)
	e.held, e.heldSum, e.heldSq, e.heldOver = 0, 0, 0, 0
}

// side is one direction of a two-sided CUSUM (Page 1954): rises with residuals beyond the reference value, never below
// zero. Its last stay at zero is the maximum-likelihood estimate of where the change began; sums run since then.
type side struct {
	sum     float64
	calls   int     // since it was last at zero
	signal  float64 // sum of log residuals of the signal over these calls, not cut off
	counter float64 // likewise of the counter, over counted calls
	counted int
}

func (s *side) step(z, k float64) {
	s.sum = math.Max(0, s.sum+z-k)
	if s.sum == 0 {
		*s = side{}
	}
}

func (s *side) add(r residual) {
	if s.sum == 0 {
		return
	}
	s.calls++
	s.signal += r.signal
	if r.counterKnown {
		s.counter += r.counter
		s.counted++
	}
}

// chart is a two-sided CUSUM over all actions of a bucket: residuals are standardised by action, so a change of action
// goes on where the one before stopped.
type chart struct {
	up, down  side
	excursion uint32 // counts returns of both sides to zero
	noise     sumNoise
	limit     float64 // threshold at the last call, standard deviations
	latest    float64 // residual, likewise
}

// step judges one call against e and keeps it for e. It reports whether either side has reached h.
func (c *chart) step(e *expectation, x, k, h, minScale float64) bool {
	if e.held > 0 && e.heldIn != c.excursion {
		e.takeIn()
	}
	z, deviation := e.standardise(x, minScale)
	reached := c.judge(z, k, h, e.n)
	e.hold(x, deviation, c.excursion)
	if c.up.sum == 0 && c.down.sum == 0 {
		c.excursion++
	}
	return reached
}

// judge takes in one standardised residual against an expectation from n calls.
func (c *chart) judge(z, k, h, n float64) bool {
	c.noise.add(z)
	r := c.noise.inflation()
	k += widening * r / n
	h *= r
	c.latest, c.limit = z, h
	c.up.step(z, k)
	c.down.step(-z, k)
	return c.up.sum >= h || c.down.sum >= h
}

// withShare is the part of its threshold that one latency's chart has to have reached where the other's alarms.
const withShare = 0.1

// goesWith says that c begins to rise on the side on which other has reached its threshold. A put's counter has bursts of its own: every
// fault that there is a name for moves the signal, too, which is what a choice is charged.
func (c *chart) goesWith(other *chart) bool {
	if other.up.sum >= other.down.sum {
		return c.up.sum > withShare*c.limit
	}
	return c.down.sum > withShare*c.limit
}

// top keeps sums at the threshold.
func (c *chart) top() {
	c.up.sum, c.down.sum = math.Min(c.up.sum, c.limit), math.Min(c.down.sum, c.limit)
}

// height is the larger side as a fraction of the threshold.
func (c *chart) height() float64 {
	if c.limit == 0 {
		return 0
	}
	return math.Max(c.up.sum, c.down.sum) / c.limit
}

// restart puts both sides to zero. What is known of the noise stays: it is the fabric's, whatever its costs are.
func (c *chart) restart() {
	*c = chart{noise: c.noise}
	c.noise.interrupt()
}

// normalFromT turns Student's t with nu degrees of freedom into the normal deviate of the same probability: Wallace,
// Bounds on normal approximations to Student's and the chi-square distributions, Ann. Math. Stat. 30 (1959).
func normalFromT(t, nu float64) float64 {
	return math.Copysign((8*nu+1)/(8*nu+3)*math.Sqrt(nu*math.Log1p(t*t/nu)), t)
}

// sigmaPerMAD makes a median absolute deviation comparable to a standard deviation of normal data: 1/0.6745.
const sigmaPerMAD = 1.4826

// medianOf sorts v.
func medianOf(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

func clamp(x, reach float64) float64 { return math.Max(-reach, math.Min(reach, x)) }
