package agents

import "math"

// fromSteady is the mean run length when the chart has run for long under before without alarm, which is what a change
// meets in practice: the quasi-stationary distribution of before, by power iteration.
func (c *chain) fromSteady(before *chain) float64 {
	n := c.n
	v, next := make([]float64, n), make([]float64, n)
	v[0] = 1
	for range 200 {
		clear(next)
		sum := 0.0
		for i, vi := range v {
			for j, p := range before.p[i*n : i*n+n] {
				next[j] += vi * p
			}
		}
		for _, x := range next {
			sum += x
		}
		for i := range next {
			v[i] = next[i] / sum
		}
	}
	mean := 0.0
	for i, vi := range v {
		mean += vi * c.runs[i]
	}
	return mean
}

// siegmund is the closed approximation of a one-sided run length for residuals that are not cut off: Siegmund,
// Sequential Analysis (1985), section 2.6. It stands beside the chain as a check of its order of magnitude.
func siegmund(h, k, mu float64) float64 {
	drift, b := mu-k, h+1.166
	if math.Abs(drift) < 1e-9 {
		return b * b
	}
	return (math.Exp(-2*drift*b) + 2*drift*b - 1) / (2 * drift * drift)
}
