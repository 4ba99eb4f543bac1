package agents

import (
	"math"

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
	sigma := l.sigma()
	c[3] = math.Log(sigma / priorSigma)
	best, tried := 0.0, 0
	for i := range l.set {
		if l.arms.samples[i].n > 0 {
			tried++
			if r, p := l.measured(i, sigma); i > 0 && p > 0 {
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

// Where an action's evidence is, after its static features.
const (
	memoryMean   = 0 // in the remembered condition most like this one, weighted
	memoryWeight = 1
	ownShare     = 2 // of counter in signal, over the default's
	ownCalls     = 3
	ownRecency   = 4
	modelMean    = 5 // what the Gaussian process expects over the default,
	modelWidth   = 6 // how sure it is,
	modelGap     = 7 // what it expects over its best,
	modelGapSD   = 8 // and how sure it is of that
)

// widthFeature scales a standard deviation as the width head needs it.
func widthFeature(sd float64) float64 { return (math.Log(max(sd, 1e-3)) - WidthCentre) / WidthReach }

// writeEvidence fills the part of the actions' features that changes: what was measured here, in other buckets and in
// other conditions.
func (l *lstm) writeEvidence() {
	l.refresh(l.sigma())
	r := l.memory.likely(l.arms)
	best := 0
	for i := range l.set {
		if l.model.mean[i] < l.model.mean[best] {
			best = i
		}
	}
	bestMean, bestSD := l.model.behind(best, 0)
	for i := 1; i < len(l.set); i++ {
		e := l.row(i)[staticWidth:]
		clear(e)
		if r != nil {
			if rel, ok := r.relative(i); ok {
				w := float64(r.n[i]) / (1 + float64(r.n[i]))
				e[memoryMean], e[memoryWeight] = w*clip(rel, 3), w
			}
		}
		if s := &l.share[i]; s.n > 0 && l.share[0].n > 0 && !l.opt.Without.Counter {
			e[ownShare] = clip(s.mean-l.share[0].mean, 2)
		}
		if n := l.arms.samples[i].n; n > 0 {
			e[ownCalls] = math.Log1p(float64(n)) / 3
			e[ownRecency] = math.Exp(-float64(l.sinceShift-l.lastCall[i]) / 16)
		}
		mean, sd := l.model.behind(i, 0)
		e[modelMean], e[modelWidth] = clip(mean, 3), widthFeature(sd)
		mean, sd = l.model.behind(i, best)
		e[modelGap], e[modelGapSD] = clip(mean, 3), sd
	}
	l.context[machineWidth+15], l.context[machineWidth+16] = clip(bestMean, 2), bestSD
}
