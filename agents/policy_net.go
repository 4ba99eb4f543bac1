package agents

import (
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
)

// policyNet runs the policy on plain slices. It holds the state of one bucket's LSTM and scratch; weights are shared.
type policyNet struct {
	w      *PolicyWeights
	hidden []float64    // [PolicyHidden]
	cell   []float64    // [PolicyHidden]
	gates  [4][]float64 // [PolicyHidden], scratch
	middle []float64    // [PolicyMiddle], scratch
	coef   []float64    // [ActionWidth], scratch
	mean   []float64    // [A]: what think found
	logv   []float64    // [A]
	trust  []float64    // [A]
}

func newPolicyNet(w *PolicyWeights, set int) policyNet {
	n := policyNet{w: w, hidden: make([]float64, PolicyHidden), cell: make([]float64, PolicyHidden), middle: make([]float64, PolicyMiddle),
		coef: make([]float64, ActionWidth), mean: make([]float64, set), logv: make([]float64, set), trust: make([]float64, set)}
	for g := range n.gates {
		n.gates[g] = make([]float64, PolicyHidden)
	}
	return n
}

func vector(x []float64) blas64.Vector { return blas64.Vector{N: len(x), Inc: 1, Data: x} }

func matrix(x []float64, rows, cols int) blas64.General {
	return blas64.General{Rows: rows, Cols: cols, Stride: cols, Data: x}
}

// addProduct is y += x w, for w [len(x), len(y)].
func addProduct(y, x, w []float64) {
	blas64.Gemv(blas.Trans, 1, matrix(w, len(x), len(y)), vector(x), 1, vector(y))
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// step reads one token.
func (n *policyNet) step(token []float64) {
	for g := range n.gates {
		clear(n.gates[g])
		addProduct(n.gates[g], token, n.w.GateX[g])
		addProduct(n.gates[g], n.hidden, n.w.GateH[g])
	}
	in, forget, candidate, out := n.gates[0], n.gates[1], n.gates[2], n.gates[3]
	for i := range n.cell {
		n.cell[i] = sigmoid(forget[i])*n.cell[i] + sigmoid(in[i])*math.Tanh(candidate[i])
		n.hidden[i] = sigmoid(out[i]) * math.Tanh(n.cell[i])
	}
}

// Bounds of the log standard deviation that the policy can express: 0.05 to 1.
const (
	WidthCentre = -1.5
	WidthReach  = 1.5
)

// think gives every action's expected log cost over the default, its log variance before the action's own measurements
// are counted, and how much those still say, 0 to 1. features is [A, ActionWidth].
func (n *policyNet) think(context, features []float64) {
	clear(n.middle)
	addProduct(n.middle, context, n.w.MiddleC)
	addProduct(n.middle, n.hidden, n.w.MiddleH)
	for i, x := range n.middle {
		n.middle[i] = max(0, x)
	}
	n.head(n.mean, features, n.w.MeanW, n.w.MeanB)
	n.head(n.logv, features, n.w.WidthW, n.w.WidthB)
	n.head(n.trust, features, n.w.TrustW, n.w.TrustB)
	for i := range n.logv {
		n.logv[i] = 2 * (WidthCentre + WidthReach*math.Tanh(n.logv[i]))
		n.trust[i] = sigmoid(n.trust[i])
	}
}

// head is out = features (b + middle w): linear in the action's features, with coefficients that depend on everything
// else. So path, algorithm, protocol, channels, threads and backend each have their part of the sum.
func (n *policyNet) head(out, features, w, b []float64) {
	copy(n.coef, b)
	addProduct(n.coef, n.middle, w)
	blas64.Gemv(blas.NoTrans, 1, matrix(features, len(out), ActionWidth), vector(n.coef), 0, vector(out))
}
