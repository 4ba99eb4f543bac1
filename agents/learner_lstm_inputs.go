package agents

import (
	"cmp"
	"math"
	"slices"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// twoSided is a CUSUM chart in standard deviations, which the policy reads long before it would be an alarm.
type twoSided struct{ up, down float64 }

const (
	chartSlack = 0.5
	chartLimit = 6
)

func (c *twoSided) add(z float64) {
	z = clip(z, 3)
	c.up = min(chartLimit, max(0, c.up+z-chartSlack))
	c.down = min(chartLimit, max(0, c.down-z-chartSlack))
}

// chart takes one call into the charts of signal and counter, against the action's own earlier calls.
func (l *lstm) chart(i int, o *state.Observation, s *samples, sigma float64) {
	if s.n > 1 {
		l.charts[0].add((float64(s.logs[(s.n-1)%window]) - s.log()) / sigma)
	}
	if o.CounterNs <= 0 {
		return
	}
	sh := &l.share[i]
	x := math.Log(float64(o.CounterNs) / float64(o.SignalNs))
	if sh.n > 0 {
		l.charts[1].add((x - sh.mean) / sigma)
	}
	sh.n++
	sh.mean += (x - sh.mean) / float64(min(sh.n, window))
}

func (l *lstm) writeCharts(dst []float64) {
	if l.opt.Without.CUSUM {
		return
	}
	dst[0], dst[1] = l.charts[0].up/chartLimit, l.charts[0].down/chartLimit
	if !l.opt.Without.Counter {
		dst[2], dst[3] = l.charts[1].up/chartLimit, l.charts[1].down/chartLimit
	}
}

// writeContext fills the part of the context that changes.
func (l *lstm) writeContext() {
	c := l.context[:]
	clear(c)
	copy(c, l.machine[:])
	c = c[machineWidth:]
	n0 := l.arms.samples[0].n
	c[0] = min(1, float64(n0)/3)
	if ref := l.reference(); ref != 0 {
		c[1] = (ref - math.Log(50e3)) / 3
	}
	c[2] = math.Log1p(float64(l.arms.calls)) / 4
	c[3] = math.Log(l.arms.sigma() / priorSigma)
	best, tried := 0.0, 0
	for i := range l.set {
		if l.arms.samples[i].n > 0 {
			tried++
			if r, p := l.measured(i); i > 0 && p > 0 {
				best = min(best, r)
			}
		}
	}
	c[4] = clip(best, 2)
	c[5] = float64(tried) / float64(len(l.set))
	c[6] = math.Log1p(float64(tried)) / 3
	if len(l.memory.regimes) > 0 {
		c[7] = 1
		if n0 > 0 && l.oldDefault != 0 {
			c[8] = clip(l.arms.samples[0].log()-l.oldDefault, 3)
		}
		c[13] = math.Exp(-float64(l.sinceShift) / 8)
	}
	l.writeCharts(c[9:13])
	if l.share[0].n > 0 && !l.opt.Without.Counter {
		c[17], c[18] = clip(l.share[0].mean, 2), 1
	}
	c[19] = bandwidthBound(l.task.Bucket.Log2Bytes)
}

// neighbours of an action: the same choice with the next fewer and next more channels. -1: there is none.
type neighbours struct{ line []int32 } // indices of the whole line by channels; shared by its actions

// findNeighbours groups a set into lines.
func findNeighbours(set []actions.Action) []neighbours {
	out := make([]neighbours, len(set))
	for i, a := range set {
		if out[i].line != nil || a.Path == actions.PathDefault {
			continue
		}
		var line []int32
		key := a
		key.Channels = 0
		for j, b := range set {
			b.Channels = 0
			if b == key {
				line = append(line, int32(j))
			}
		}
		slices.SortStableFunc(line, func(x, y int32) int { return cmp.Compare(set[x].Channels, set[y].Channels) })
		for _, j := range line {
			out[j].line = line
		}
	}
	return out
}

// closeness is how much a measurement that is d octaves away counts.
func closeness(d float64) float64 { return math.Exp2(-math.Abs(d)) }

// writeEvidence fills the part of the actions' features that changes: what was measured nearby.
func (l *lstm) writeEvidence() {
	r := l.memory.likely(l.arms)
	if !l.opt.Without.Peers {
		l.peers.refresh(&l.task)
	}
	peerBest, peerWeight := 0.0, 0.0
	for i := 1; i < len(l.set); i++ {
		e := l.row(i)[staticWidth:]
		clear(e)
		at := slices.Index(l.lines[i].line, int32(i))
		e[0], e[1] = l.neighbour(i, at, -1)
		e[2], e[3] = l.neighbour(i, at, +1)
		if !l.opt.Without.Peers {
			b := l.peers.evidence(i, e[4:10])
			peerWeight = max(peerWeight, e[5], e[7])
			peerBest = min(peerBest, b)
		}
		if r != nil {
			if rel, ok := r.relative(i); ok {
				w := float64(r.n[i]) / (1 + float64(r.n[i]))
				e[10], e[11] = w*clip(rel, 3), w
			}
		}
		if s := &l.share[i]; s.n > 0 && l.share[0].n > 0 && !l.opt.Without.Counter {
			e[12] = clip(s.mean-l.share[0].mean, 2)
		}
		if n := l.arms.samples[i].n; n > 0 {
			e[13] = math.Log1p(float64(n)) / 3
			e[14] = math.Exp(-float64(l.sinceShift-l.lastCall[i]) / 16)
		}
	}
	l.context[machineWidth+15], l.context[machineWidth+16] = clip(peerBest, 2), min(1, peerWeight)
}

// neighbour is the nearest measured action of the line in a direction: weighted relative cost, and the weight.
func (l *lstm) neighbour(i, at, direction int) (weighted, weight float64) {
	line := l.lines[i].line
	for at += direction; at >= 0 && at < len(line); at += direction {
		j := int(line[at])
		rel, p := l.measured(j)
		if p == 0 {
			continue
		}
		n := float64(l.arms.samples[j].n)
		w := n / (1 + n) * closeness(5*(octaves(l.set[j].Channels)-octaves(l.set[i].Channels)))
		return w * rel, w
	}
	return 0, 0
}
