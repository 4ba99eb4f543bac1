package tunersim

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// parameter is a positive value that a fit moves, in its logarithm, from where a source puts it.
type parameter struct {
	value *float64
	prior float64 // log
	sigma float64 // how far in the log the source may be off
	pair  int     // only rows of this algorithm and protocol depend on it; allRows: any may
}

// allRows is no pair.
const allRows = -1

// fitNoise is the log error that a fit expects of a row; larger ones pull less (Huber).
const fitNoise = 0.1

// leastSquares moves parameters so that residuals, log model over log measured, become small in the sense of Huber's
// loss, each parameter held by its prior: Levenberg and Marquardt's steps with differences for derivatives. residuals sets
// the rows that depend on a pair and leaves the others.
func leastSquares(ps []parameter, residuals func(out []float64, pair int), rows, steps int) {
	n := len(ps)
	x := make([]float64, n)
	for i, p := range ps {
		x[i] = math.Log(*p.value)
	}
	set := func(x []float64) {
		for i, p := range ps {
			*p.value = math.Exp(x[i])
		}
	}
	loss := func(r, x []float64) float64 {
		sum := 0.0
		for _, v := range r {
			if v = math.Abs(v) / fitNoise; v > 2 {
				sum += 4*v - 4
			} else {
				sum += v * v
			}
		}
		for i, p := range ps {
			sum += (x[i] - p.prior) * (x[i] - p.prior) / (p.sigma * p.sigma)
		}
		return sum
	}
	r, moved, tried, weights := make([]float64, rows), make([]float64, rows), make([]float64, n), make([]float64, rows)
	columns := make([][]float64, n)
	for i := range columns {
		columns[i] = make([]float64, rows)
	}
	normal, gradient := mat.NewSymDense(n, nil), mat.NewVecDense(n, nil)
	set(x)
	residuals(r, allRows)
	now, damp := loss(r, x), 1e-2
	for range steps {
		const delta = 1e-4
		for j, p := range ps {
			*p.value = math.Exp(x[j] + delta)
			copy(moved, r)
			residuals(moved, p.pair)
			*p.value = math.Exp(x[j])
			for i := range moved {
				columns[j][i] = (moved[i] - r[i]) / delta
			}
		}
		for i, v := range r {
			weights[i] = huberWeight(v)
		}
		for j, p := range ps {
			g := (x[j] - p.prior) / (p.sigma * p.sigma)
			for i, v := range r {
				g += columns[j][i] * v * weights[i]
			}
			gradient.SetVec(j, -g)
			for k := j; k < n; k++ {
				h := 0.0
				if p.pair == ps[k].pair || p.pair == allRows || ps[k].pair == allRows { // else they share no row
					own, other := columns[j][:rows], columns[k][:rows]
					for i, w := range weights {
						h += own[i] * other[i] * w
					}
				}
				if j == k {
					h += 1 / (p.sigma * p.sigma)
				}
				normal.SetSym(j, k, h)
			}
		}
		before := now
		for range 12 {
			damped := mat.NewSymDense(n, nil)
			damped.CopySym(normal)
			for j := range n {
				damped.SetSym(j, j, normal.At(j, j)*(1+damp))
			}
			var chol mat.Cholesky
			var step mat.VecDense
			if chol.Factorize(damped) && chol.SolveVecTo(&step, gradient) == nil {
				for j := range tried {
					tried[j] = x[j] + max(-1, min(1, step.AtVec(j)))
				}
				set(tried)
				residuals(moved, allRows)
				if l := loss(moved, tried); l < now {
					now, damp = l, max(damp/4, 1e-6)
					copy(x, tried)
					copy(r, moved)
					break
				}
			}
			damp *= 4
		}
		set(x)
		if before-now < 1e-3*before/float64(rows) {
			return
		}
	}
}

// huberWeight is 1/fitNoise^2 up to two of it, then less.
func huberWeight(v float64) float64 {
	w := 1 / (fitNoise * fitNoise)
	if v = math.Abs(v) / fitNoise; v > 2 {
		w *= 2 / v
	}
	return w
}
