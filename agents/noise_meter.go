package agents

import "math"

// noiseMeter estimates the standard deviation of a call's log cost from calls that repeat an action. A handful of calls
// in each of many buckets tell more than the first calls of one, so a bucket begins with what the communicator knows.
type noiseMeter struct {
	sum float64 // of squared deviations, tails cut off
	n   float64
}

const (
	noiseWeight = 8    // calls that what was known before counts for
	noiseCut    = 3    // standard deviations; a delayed call is not noise
	meterMemory = 4096 // calls: a communicator may live for months, and its noise change
)

// add takes in how far a call was from the mean of the n calls of its action before it.
func (m *noiseMeter) add(deviation float64, n int, sigma float64) {
	if m.n == meterMemory {
		m.sum -= m.sum / meterMemory
		m.n--
	}
	d := min(math.Abs(deviation), noiseCut*sigma)
	m.sum += d * d * float64(n) / float64(n+1)
	m.n++
}

// variance is the estimate, given what was known before.
func (m *noiseMeter) variance(before float64) float64 {
	return (m.sum + noiseWeight*before) / (m.n + noiseWeight)
}
