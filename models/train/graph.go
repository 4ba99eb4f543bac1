package train

import (
	"fmt"
	"math/rand/v2"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"dynamiccl/agents"
)

// graph is the policy, unrolled over T tokens of B sequences, with the loss at D moments of each; N = D*B.
type graph struct {
	batch, choices int
	grid           []int // tokens read before each of the D moments

	tokens                                      []*G.Node // T of [B, TokenWidth]
	context                                     *G.Node   // [N, ContextWidth]
	features                                    *G.Node   // [N, choices, ActionWidth]
	relative, precision, target, weight         *G.Node   // [N, choices]
	params                                      G.Nodes
	actor                                       [actorInputs]*G.Node // of ActorCritic alone
	loss                                        *G.Node
	lossValue, meanValue, logvValue, trustValue G.Value
	vm                                          G.VM
}

// Bounds as in agents.policyNet.
const (
	tableNoise  = 0.02 // standard deviation of log costs in the tables themselves
	tailFreedom = 4
)

func newGraph(o Objective, batch, choices int, grid []int, dt tensor.Dtype, gradients bool) (*graph, error) {
	g := G.NewGraph()
	steps := grid[len(grid)-1]
	n := len(grid) * batch
	input := func(name string, shape ...int) *G.Node {
		return G.NewTensor(g, dt, len(shape), G.WithShape(shape...), G.WithName(name))
	}
	b := &graph{batch: batch, choices: choices, grid: grid}
	byName := map[string]*G.Node{}
	for _, p := range agents.RandomPolicyWeights(rand.New(rand.NewPCG(0, 0))).Params() {
		node := input(p.Name, p.Rows, p.Cols)
		b.params = append(b.params, node)
		byName[p.Name] = node
	}
	scalar := func(x float64) *G.Node {
		if dt == tensor.Float32 {
			return G.NewConstant(float32(x))
		}
		return G.NewConstant(x)
	}
	must := func(node *G.Node, err error) *G.Node {
		if err != nil {
			panic(fmt.Errorf("building the graph: %w", err)) // shapes are constants: a bug of ours
		}
		return node
	}
	hidden, cell := input("hidden0", batch, agents.PolicyHidden), input("cell0", batch, agents.PolicyHidden)
	zeros := tensor.New(tensor.Of(dt), tensor.WithShape(batch, agents.PolicyHidden))
	if err := G.Let(hidden, zeros); err != nil {
		return nil, err
	}
	if err := G.Let(cell, zeros.Clone()); err != nil {
		return nil, err
	}
	var states []*G.Node
	at := 0
	for t := 0; ; t++ {
		if at < len(grid) && grid[at] == t {
			states = append(states, hidden)
			at++
		}
		if t == steps {
			break
		}
		x := input(fmt.Sprintf("token%d", t), batch, agents.TokenWidth)
		b.tokens = append(b.tokens, x)
		gate := func(name string) *G.Node {
			return must(G.Add(must(G.Mul(x, byName["x_"+name])), must(G.Mul(hidden, byName["h_"+name]))))
		}
		in, forget := must(G.Sigmoid(gate("input"))), must(G.Sigmoid(gate("forget")))
		candidate, out := must(G.Tanh(gate("cell"))), must(G.Sigmoid(gate("output")))
		cell = must(G.Add(must(G.HadamardProd(forget, cell)), must(G.HadamardProd(in, candidate))))
		hidden = must(G.HadamardProd(out, must(G.Tanh(cell))))
	}
	all := states[0]
	if len(states) > 1 {
		all = must(G.Concat(0, states...))
	}
	b.context = input("context", n, agents.ContextWidth)
	b.features = input("features", n, choices, agents.ActionWidth)
	b.relative, b.precision = input("relative", n, choices), input("precision", n, choices)
	b.target, b.weight = input("target", n, choices), input("weight", n, choices)
	ones := input("ones", n, 1)
	if err := G.Let(ones, tensor.Ones(dt, n, 1)); err != nil {
		return nil, err
	}
	middle := must(G.Rectify(must(G.Add(must(G.Mul(b.context, byName["middle_c"])), must(G.Mul(all, byName["middle_h"]))))))
	head := func(name string) *G.Node {
		coef := must(G.Add(must(G.Mul(middle, byName[name+"_w"])), must(G.Mul(ones, byName[name+"_b"]))))
		coef = must(G.Reshape(coef, tensor.Shape{n, agents.ActionWidth, 1}))
		return must(G.Reshape(must(G.BatchedMatMul(b.features, coef)), tensor.Shape{n, choices}))
	}
	mean := head("mean")
	logSD := must(G.Add(must(G.Mul(scalar(agents.WidthReach), must(G.Tanh(head("width"))))), scalar(agents.WidthCentre)))
	logV := must(G.Mul(scalar(2), logSD))
	prior := must(G.Exp(must(G.Neg(logV))))
	trust := must(G.Sigmoid(head("trust")))
	trusted := must(G.HadamardProd(b.precision, trust))
	precision := must(G.Add(prior, trusted))
	posterior := must(G.HadamardDiv(must(G.Add(must(G.HadamardProd(prior, mean)), must(G.HadamardProd(trusted, b.relative)))), precision))
	spread := must(G.Add(must(G.Inverse(precision)), scalar(tableNoise*tableNoise)))
	miss := must(G.Square(must(G.Sub(b.target, posterior))))
	// Twice the negative log likelihood of Student's t with 4 degrees of freedom: a change of conditions that nothing has
	// shown yet makes old measurements wrong by any amount, and must not outweigh all that can be learned.
	far := must(G.Log(must(G.Add(must(G.Mul(scalar(1.0/tailFreedom), must(G.HadamardDiv(miss, spread)))), scalar(1)))))
	nll := must(G.Add(must(G.Log(spread)), must(G.Mul(scalar(tailFreedom+1), far))))
	b.loss = must(G.Sum(must(G.HadamardProd(b.weight, nll))))
	if o == ActorCritic {
		for i := range b.actor {
			b.actor[i] = input(fmt.Sprintf("actor%d", i), n, actorColumns(i, choices))
		}
		column := input("column", choices, 1)
		if err := G.Let(column, tensor.Ones(dt, choices, 1)); err != nil {
			return nil, err
		}
		hope := must(G.Sub(must(G.Mul(scalar(optimism), must(G.Sqrt(must(G.Inverse(precision)))))), posterior))
		z := must(G.Mul(scalar(1/temperature), must(G.Sub(hope, b.actor[actorPeak]))))
		e := must(G.Exp(z))
		total := must(G.Add(must(G.Mul(e, column)), b.actor[actorRest]))
		logTotal := must(G.Log(total))
		meanZ := must(G.HadamardDiv(must(G.Add(must(G.Mul(must(G.HadamardProd(e, z)), column)), b.actor[actorRestZ])), total))
		// Minus advantage times log probability: the probability's numerator, its denominator.
		b.loss = must(G.Sub(b.loss, must(G.Sum(must(G.HadamardProd(b.actor[actorTaken], z))))))
		b.loss = must(G.Add(b.loss, must(G.Sum(must(G.HadamardProd(b.actor[actorGain], logTotal))))))
		entropy := must(G.Sub(logTotal, meanZ))
		b.loss = must(G.Sub(b.loss, must(G.Sum(must(G.HadamardProd(b.actor[actorBonus], entropy))))))
	}
	G.Read(b.loss, &b.lossValue)
	G.Read(mean, &b.meanValue)
	G.Read(logV, &b.logvValue)
	G.Read(trust, &b.trustValue)
	var opts []G.VMOpt
	if gradients {
		if _, err := G.Grad(b.loss, b.params...); err != nil {
			return nil, fmt.Errorf("differentiating: %w", err)
		}
		opts = append(opts, G.BindDualValues(b.params...))
	}
	b.vm = G.NewTapeMachine(g, opts...)
	return b, nil
}
