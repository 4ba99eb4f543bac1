package train

import (
	"math"
	"math/rand/v2"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"dynamiccl/agents"
)

// inputs are the backing slices of one batch; see graph for the shapes.
type inputs struct {
	tokens                                [][]float32
	context, features                     []float32
	relative, precision, target, weight   []float32
	tokenT                                []*tensor.Dense
	contextT, featuresT                   *tensor.Dense
	relativeT, precisionT, targetT, wghtT *tensor.Dense
	actor                                 [actorInputs][]float32
	actorT                                [actorInputs]*tensor.Dense
}

func newInputs(batch, choices int, grid []int) *inputs {
	in := &inputs{}
	n := batch * len(grid)
	dense := func(shape ...int) ([]float32, *tensor.Dense) {
		size := 1
		for _, s := range shape {
			size *= s
		}
		data := make([]float32, size)
		return data, tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data))
	}
	for range grid[len(grid)-1] {
		d, t := dense(batch, agents.TokenWidth)
		in.tokens, in.tokenT = append(in.tokens, d), append(in.tokenT, t)
	}
	in.context, in.contextT = dense(n, agents.ContextWidth)
	in.features, in.featuresT = dense(n, choices, agents.ActionWidth)
	in.relative, in.relativeT = dense(n, choices)
	in.precision, in.precisionT = dense(n, choices)
	in.target, in.targetT = dense(n, choices)
	in.weight, in.wghtT = dense(n, choices)
	for i := range in.actor {
		in.actor[i], in.actorT[i] = dense(n, actorColumns(i, choices))
	}
	return in
}

// let hands the batch to a graph.
func (in *inputs) let(g *graph) error {
	pairs := []struct {
		node *G.Node
		t    *tensor.Dense
	}{{g.context, in.contextT}, {g.features, in.featuresT}, {g.relative, in.relativeT}, {g.precision, in.precisionT},
		{g.target, in.targetT}, {g.weight, in.wghtT}}
	for _, p := range pairs {
		if err := G.Let(p.node, p.t); err != nil {
			return err
		}
	}
	for i, node := range g.actor {
		if node == nil {
			continue
		}
		if err := G.Let(node, in.actorT[i]); err != nil {
			return err
		}
	}
	for t, node := range g.tokens {
		if err := G.Let(node, in.tokenT[t]); err != nil {
			return err
		}
	}
	return nil
}

// How much more an action counts the nearer it is to the best: what is hopeless need not be known precisely.
const (
	nearWeight = 3
	nearLog    = 0.15
)

// fill writes sequences into the batch. Of a large action set each decision takes a part: what was tried, what is best,
// and others by chance.
func (in *inputs) fill(o Objective, seqs []sequence, grid []int, choices int, rng *rand.Rand) {
	clear(in.weight)
	batch := len(seqs)
	total := float32(0)
	order := []int{}
	in.clearActor()
	var acts []act
	for b, s := range seqs {
		for t, dst := range in.tokens {
			row := dst[b*agents.TokenWidth : (b+1)*agents.TokenWidth]
			clear(row)
			if (t+1)*agents.TokenWidth <= len(s.tokens) {
				for i, x := range s.tokens[t*agents.TokenWidth : (t+1)*agents.TokenWidth] {
					row[i] = float32(x)
				}
			}
		}
		at := 0
		for _, d := range s.decisions {
			for at < len(grid) && grid[at] < d.After {
				at++
			}
			if at == len(grid) || grid[at] != d.After {
				continue
			}
			n := at*batch + b
			for i, x := range d.Context {
				in.context[n*agents.ContextWidth+i] = float32(x)
			}
			truth := s.truth[d.Phase]
			if o == ActorCritic {
				order = likeliest(order[:0], d, choices)
			} else {
				order = pick(order[:0], d, truth, choices, rng)
			}
			best := 0.0
			for _, y := range truth {
				best = min(best, y)
			}
			for k, a := range order {
				for i, x := range d.Features[a*agents.ActionWidth : (a+1)*agents.ActionWidth] {
					in.features[(n*choices+k)*agents.ActionWidth+i] = float32(x)
				}
				j := n*choices + k
				in.relative[j], in.precision[j] = float32(d.Relative[a]), float32(d.Precision[a])
				in.target[j] = float32(truth[a])
				in.weight[j] = float32(1 + nearWeight*math.Exp(-(truth[a]-best)/nearLog))
				if o != Imitation {
					in.target[j], in.weight[j] = float32(d.Paid), 0
					if a == d.Taken {
						in.weight[j] = 1
					}
				}
				total += in.weight[j]
			}
			if o == ActorCritic && d.Drawn && d.Taken >= 0 {
				acts = append(acts, in.act(n, choices, order, d, s.costs))
			}
		}
	}
	for i := range in.weight {
		in.weight[i] /= max(1, total)
	}
	in.reward(acts)
}

// pick chooses the actions of one decision that are learned from.
func pick(dst []int, d agents.Decision, truth []float64, choices int, rng *rand.Rand) []int {
	for a := 1; a < len(truth); a++ {
		dst = append(dst, a)
	}
	if len(dst) <= choices {
		return dst
	}
	rng.Shuffle(len(dst), func(i, j int) { dst[i], dst[j] = dst[j], dst[i] })
	best := 0
	for i, a := range dst {
		if truth[a] < truth[dst[best]] {
			best = i
		}
	}
	dst[0], dst[best] = dst[best], dst[0]
	kept := 1
	for i := 1; i < len(dst); i++ {
		if dst[i] == d.Taken {
			dst[kept], dst[i] = dst[i], dst[kept]
			kept++
		}
	}
	for i := kept; i < len(dst) && kept < choices/2; i++ {
		if d.Precision[dst[i]] > 0 {
			dst[kept], dst[i] = dst[i], dst[kept]
			kept++
		}
	}
	return dst[:choices]
}
