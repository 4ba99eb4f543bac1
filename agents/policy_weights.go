package agents

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
)

// Sizes of the policy network.
const (
	PolicyHidden = 48 // LSTM cells
	PolicyMiddle = 96 // units between context and heads
)

// PolicyWeights are the parameters of the policy. Row-major; gates in the order input, forget, cell, output. The first
// feature of token and context is always 1, so their first rows are the biases.
type PolicyWeights struct {
	GateX [4][]float64 // [TokenWidth, PolicyHidden]
	GateH [4][]float64 // [PolicyHidden, PolicyHidden]

	MiddleH []float64 // [PolicyHidden, PolicyMiddle]
	MiddleC []float64 // [ContextWidth, PolicyMiddle]

	MeanW  []float64 // [PolicyMiddle, ActionWidth]: coefficients of the expected log cost over the action's features
	MeanB  []float64 // [ActionWidth]
	WidthW []float64 // [PolicyMiddle, ActionWidth]: likewise of its uncertainty
	WidthB []float64 // [ActionWidth]
	TrustW []float64 // [PolicyMiddle, ActionWidth]: likewise of how much its own measurements still say
	TrustB []float64 // [ActionWidth]
}

// Param is one parameter tensor.
type Param struct {
	Name       string
	Rows, Cols int
	Data       []float64
}

// Params lists the tensors in the order of the file format.
func (w *PolicyWeights) Params() []Param {
	var ps []Param
	gates := [4]string{"input", "forget", "cell", "output"}
	for g, name := range gates {
		ps = append(ps, Param{"x_" + name, TokenWidth, PolicyHidden, w.GateX[g]},
			Param{"h_" + name, PolicyHidden, PolicyHidden, w.GateH[g]})
	}
	return append(ps,
		Param{"middle_h", PolicyHidden, PolicyMiddle, w.MiddleH}, Param{"middle_c", ContextWidth, PolicyMiddle, w.MiddleC},
		Param{"mean_w", PolicyMiddle, ActionWidth, w.MeanW}, Param{"mean_b", 1, ActionWidth, w.MeanB},
		Param{"width_w", PolicyMiddle, ActionWidth, w.WidthW}, Param{"width_b", 1, ActionWidth, w.WidthB},
		Param{"trust_w", PolicyMiddle, ActionWidth, w.TrustW}, Param{"trust_b", 1, ActionWidth, w.TrustB})
}

// newPolicyWeights makes weights of zeros.
func newPolicyWeights() *PolicyWeights {
	w := &PolicyWeights{}
	for g := range 4 {
		w.GateX[g] = make([]float64, TokenWidth*PolicyHidden)
		w.GateH[g] = make([]float64, PolicyHidden*PolicyHidden)
	}
	w.MiddleH = make([]float64, PolicyHidden*PolicyMiddle)
	w.MiddleC = make([]float64, ContextWidth*PolicyMiddle)
	w.MeanW = make([]float64, PolicyMiddle*ActionWidth)
	w.MeanB = make([]float64, ActionWidth)
	w.WidthW = make([]float64, PolicyMiddle*ActionWidth)
	w.WidthB = make([]float64, ActionWidth)
	w.TrustW = make([]float64, PolicyMiddle*ActionWidth)
	w.TrustB = make([]float64, ActionWidth)
	return w
}

// headScale makes an untrained policy think nothing of any action.
const headScale = 0.1

// RandomPolicyWeights initialises weights from rng: uniform with Glorot's bound, forget gates open.
func RandomPolicyWeights(rng *rand.Rand) *PolicyWeights {
	w := newPolicyWeights()
	for _, p := range w.Params() {
		if p.Rows == 1 {
			continue
		}
		bound := math.Sqrt(6 / float64(p.Rows+p.Cols))
		if p.Cols == ActionWidth {
			bound *= headScale
		}
		for i := range p.Data {
			p.Data[i] = float64(float32(bound * (2*rng.Float64() - 1)))
		}
	}
	for i := range PolicyHidden { // the token's first feature is 1: this row is the bias
		w.GateX[1][i] = 1
	}
	// Training begins at what the Gaussian process thinks, which knows the action's own measurements already.
	w.MeanB[staticWidth+modelMean] = 1
	w.WidthB[staticWidth+modelWidth] = 1
	w.TrustB[0] = -2
	return w
}

// Clone copies weights.
func (w *PolicyWeights) Clone() *PolicyWeights {
	c := newPolicyWeights()
	from := w.Params()
	for i, p := range c.Params() {
		copy(p.Data, from[i].Data)
	}
	return c
}

// ErrBadWeights is returned for weights that no policy can run on.
var ErrBadWeights = errors.New("bad policy weights")

// Check reports a parameter that is missing, has another size or is no finite number.
func (w *PolicyWeights) Check() error {
	for _, p := range w.Params() {
		if len(p.Data) != p.Rows*p.Cols {
			return fmt.Errorf("%s has %d values, want %dx%d: %w", p.Name, len(p.Data), p.Rows, p.Cols, ErrBadWeights)
		}
		for i, x := range p.Data {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				return fmt.Errorf("%s[%d] is %g: %w", p.Name, i, x, ErrBadWeights)
			}
		}
	}
	return nil
}
