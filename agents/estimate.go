package agents

import (
	"math"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// window is how many latest samples of an action count. 32 give a standard error of a fifth of the noise, and old ones
// are forgotten within a few epochs should a drift be too slow for the detector.
const window = 32

// Estimate is the measured cost of one action in the present condition.
type Estimate struct {
	Action actions.Action
	N      int     // calls since conditions last changed
	MeanNs float64 // over all N calls; 0 while N is 0
	VarLog float64 // sample variance of the logarithms of all N; 0 while N < 2
	LogNs  float64 // interquartile mean of the logarithms of the latest costs: what choices are made on
}

// samples collects the costs of one action. Costs are heavy-tailed and multiply, so they are judged by logarithms, and
// by the middle half of them: one delayed call must not decide anything.
type samples struct {
	n      int // since reset
	meanNs float64
	// Of logarithms, of all n: mean and sum of squares about it.
	meanLog, m2Log float64
	logs           [window]float32 // ring, next at n%window
	order          [window]float32 // the same ascending: sorting is what asking after each call would cost most
	// What log and spread gave when n was middleAt and spreadAt.
	middle, width      float64
	middleAt, spreadAt int
}

func (s *samples) add(costNs float64) {
	x, at := float32(math.Log(costNs)), min(s.n, window)
	if s.n >= window { // its place is that of the oldest
		at = 0
		for oldest := s.logs[s.n%window]; at < window-1 && s.order[at] != oldest; {
			at++
		}
	}
	for ; at > 0 && x < s.order[at-1]; at-- {
		s.order[at] = s.order[at-1]
	}
	for last := min(s.n, window-1); at < last && x > s.order[at+1]; at++ {
		s.order[at] = s.order[at+1]
	}
	s.order[at] = x
	s.logs[s.n%window] = x
	s.n++
	s.meanNs += (costNs - s.meanNs) / float64(s.n)
	d := float64(x) - s.meanLog // Welford 1962
	s.meanLog += d / float64(s.n)
	s.m2Log += d * (float64(x) - s.meanLog)
}

// varLog counts logarithms, of which one of a call that was delayed by a second is no more than ten times as far off as others.
func (s *samples) varLog() float64 {
	if s.n < 2 {
		return 0
	}
	return s.m2Log / float64(s.n-1)
}

// sorted are the latest samples in ascending order.
func (s *samples) sorted() []float32 { return s.order[:min(s.n, window)] }

func insertionSort(xs []float32) {
	for i := 1; i < len(xs); i++ {
		for j := i; j > 0 && xs[j] < xs[j-1]; j-- {
			xs[j], xs[j-1] = xs[j-1], xs[j]
		}
	}
}

// log is the interquartile mean of the latest logarithms; of one or two samples their mean. 0 while there are none.
func (s *samples) log() float64 {
	if s.middleAt != s.n || s.n == 0 {
		s.middle, s.middleAt = middleMean(s.sorted()), s.n
	}
	return s.middle
}

func middleMean(sorted []float32) float64 {
	k := len(sorted) / 4
	if len(sorted) == 3 {
		k = 1 // the median: one outlier of three must not count
	}
	sum := 0.0
	for _, x := range sorted[k : len(sorted)-k] {
		sum += float64(x)
	}
	if len(sorted) == 0 {
		return 0
	}
	return sum / float64(len(sorted)-2*k)
}

// recent is the median logarithm of the latest k samples, the lower of two middle ones; k <= window.
func (s *samples) recent(k int) float64 {
	var buf [window]float32
	k = min(k, s.n, window)
	for i := range k {
		buf[i] = s.logs[(s.n-1-i)%window]
	}
	insertionSort(buf[:k])
	return float64(buf[(k-1)/2])
}

// lateDetection is how many calls of a new condition may have come in before it is known to be one.
const lateDetection = 12

// settled is log without the latest calls, which may belong to the next condition already.
func (s *samples) settled() float64 {
	var buf [window]float32
	held := min(s.n, window)
	k := held - min(lateDetection, s.n/2)
	for i := range k {
		buf[i] = s.logs[(s.n-held+i)%window]
	}
	insertionSort(buf[:k])
	return middleMean(buf[:k])
}

// madSigma turns a median absolute deviation into a standard deviation (normal distribution).
const madSigma = 1.4826

// spread is a robust standard deviation of the latest logarithms about their middle.
func (s *samples) spread() float64 {
	if s.spreadAt != s.n {
		s.width, s.spreadAt = s.measureSpread(), s.n
	}
	return s.width
}

func (s *samples) measureSpread() float64 {
	var dev [window]float32
	xs := s.sorted()
	mid := middleMean(xs)
	for i, x := range xs {
		dev[i] = float32(math.Abs(float64(x) - mid))
	}
	insertionSort(dev[:len(xs)])
	if len(xs) == 0 {
		return 0
	}
	return madSigma * float64(dev[(len(xs)-1)/2]+dev[len(xs)/2]) / 2
}

// middleMeanInefficiency is the standard error of an interquartile mean over that of a mean, for normal noise
// (Tukey and McLaughlin 1963: winsorised deviation 0.547 over half of the sample).
const middleMeanInefficiency = 1.09

// arms are the measurements of one bucket, by action of its set.
type arms struct {
	set     []actions.Action
	index   map[actions.Action]int
	samples []samples
	calls   int // since reset
	ever    int // calls, not reset
	shifts  int // resets
	began   int // Peers' clock at the last of them
}

func newArms(set []actions.Action) *arms {
	a := &arms{set: set, index: make(map[actions.Action]int, len(set)), samples: make([]samples, len(set))}
	for i, action := range set {
		if _, ok := a.index[action]; !ok {
			a.index[action] = i
		}
	}
	return a
}

// maxCostNs is an hour. Nothing longer is a collective call; it would be a broken clock.
const maxCostNs = state.Ns(3600e9)

// of gives the index of an observation's action; observations that mean nothing give false.
func (a *arms) of(o *state.Observation) (int, bool) {
	cost := o.CostNs()
	if cost <= 0 || cost > maxCostNs {
		return 0, false
	}
	i, ok := a.index[o.Action]
	return i, ok
}

// add takes in one observation, where it means something, and gives what of does.
func (a *arms) add(o *state.Observation) (int, bool) {
	i, ok := a.of(o)
	if ok {
		a.samples[i].add(float64(o.CostNs()))
		a.calls++
		a.ever++
	}
	return i, ok
}

func (a *arms) reset() {
	clear(a.samples)
	a.calls = 0
	a.shifts++
}

// Noise before anything is measured (5-6% is what H200 NVLink and socket runs show), and how many samples it weighs.
const (
	priorSigma       = 0.06
	priorSigmaWeight = 8
	minForSpread     = 6 // of fewer samples a median absolute deviation says little
)

// sigma is the standard deviation of a single call's logarithm, pooled over actions.
func (a *arms) sigma() float64 {
	sum, weight := priorSigma*priorSigma*priorSigmaWeight, float64(priorSigmaWeight)
	for i := range a.samples {
		s := &a.samples[i]
		if s.n < minForSpread {
			continue
		}
		w, d := float64(min(s.n, window)-1), s.spread()
		sum += w * d * d
		weight += w
	}
	return math.Sqrt(sum / weight)
}

// variance is the squared standard error of an action's log.
func (a *arms) variance(i int, sigma float64) float64 {
	n := float64(min(a.samples[i].n, window))
	if n > 2 {
		sigma *= middleMeanInefficiency
	}
	return sigma * sigma / n
}

func (a *arms) estimate(i int) Estimate {
	s := &a.samples[i]
	return Estimate{Action: a.set[i], N: s.n, MeanNs: s.meanNs, VarLog: s.varLog(), LogNs: s.log()}
}
