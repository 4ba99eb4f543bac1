package train

import "math"

// adam is Adam (Kingma and Ba, ICLR 2015) with gradients clipped by their common norm. Gorgonia's solver keeps its
// moments to itself, and a checkpoint without them does not resume: the same bytes come out of a run only if they go in.
type adam struct {
	M, V [][]float32 // by parameter
	Step int
}

const (
	adamBeta1   = 0.9
	adamBeta2   = 0.999
	adamEpsilon = 1e-8
	clipNorm    = 1.0
)

func newAdam(sizes []int) *adam {
	a := &adam{M: make([][]float32, len(sizes)), V: make([][]float32, len(sizes))}
	for i, n := range sizes {
		a.M[i], a.V[i] = make([]float32, n), make([]float32, n)
	}
	return a
}

// update changes params by one step against grads and gives the gradients' norm before clipping.
func (a *adam) update(params, grads [][]float32, rate float64) float64 {
	sum := 0.0
	for _, g := range grads {
		for _, x := range g {
			sum += float64(x) * float64(x)
		}
	}
	norm := math.Sqrt(sum)
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		return norm // a step along this would ruin the weights
	}
	scale := float32(1)
	if norm > clipNorm {
		scale = float32(clipNorm / norm)
	}
	a.Step++
	step := float32(rate * math.Sqrt(1-math.Pow(adamBeta2, float64(a.Step))) / (1 - math.Pow(adamBeta1, float64(a.Step))))
	for i, g := range grads {
		m, v, p := a.M[i], a.V[i], params[i]
		for j, x := range g {
			x *= scale
			m[j] = adamBeta1*m[j] + (1-adamBeta1)*x
			v[j] = adamBeta2*v[j] + (1-adamBeta2)*x*x
			p[j] -= step * m[j] / (float32(math.Sqrt(float64(v[j]))) + adamEpsilon)
		}
	}
	return norm
}
