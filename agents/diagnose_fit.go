package agents

import "math"

const (
	minShiftCalls = 4 // calls after the change before a bucket has a say

	// A change below this, in log units, is no change to explain: a false alarm or a spike that is over.
	minLogShift = 0.02

	// What competing for cores looks like. Measured on 4x H200 over sockets, NCCL 2.28.9, a core short: 50 us became
	// 8,000 to 26,000 us at 1 to 64 KiB; other load never took a call beyond 4x. 700 us is below the shortest base
	// slice of Linux's scheduler (0.7 ms, sysctl_sched_base_slice).
	minQuantumNs     = 700e3
	minQuantumRatio  = 8
	maxSmallBytes    = 64 << 10
	minSizesApart    = 4.0 // sizes closer than this cannot tell a constant from growth
	decisiveLogOdds  = 3.0 // while more evidence will come
	completeLogOdds  = 1.0 // when no more will
	maxMisfit        = 6.0 // chi-square per degree of freedom beyond which a constant does not describe the change
	flatCounterShare = 0.4 // counter's log shift below this share of the signal's: flat
)

// schedulerQuantaNs: ticks at HZ 1000, 300, 250 and 100, and base slices of Linux's EEVDF scheduler with 8 or more cores
// (2.8 and 3 ms). Calls measured as the mean of five show multiples of a fifth of 4 ms: 0.8 ms.
var schedulerQuantaNs = [...]float64{0.8e6, 1e6, 2.8e6, 3e6, 1e7 / 3, 4e6, 10e6}

// shift is what one bucket shows: the middle of its calls after the change, as logarithms of ratios.
type shift struct {
	bytes        float64
	beforeNs     float64
	signal       float64
	signalVar    float64 // of that middle
	counter      float64
	counterKnown bool
	alarmed      bool
	after        []sighting
}

func (s *shift) addedNs() float64 { return s.beforeNs * (math.Exp(s.signal) - 1) }

// shift sums up a bucket's evidence by medians, so that spikes weigh as calls and not by their height.
func (e *evidence) shift() (shift, bool) {
	if e.taken < minShiftCalls {
		return shift{}, false
	}
	s := shift{bytes: e.bytes, alarmed: e.alarmed, after: e.after[:e.taken]}
	var buf [evidenceCalls]float64
	column := func(f func(*sighting) float64) float64 {
		for i := range s.after {
			buf[i] = f(&s.after[i])
		}
		return medianOf(buf[:e.taken])
	}
	s.signal = column(func(c *sighting) float64 { return c.signal })
	s.beforeNs = math.Exp(column(func(c *sighting) float64 { return c.before }))
	expectedBy := column(func(c *sighting) float64 { return c.expectedBy })
	spread := sigmaPerMAD * column(func(c *sighting) float64 { return math.Abs(c.signal - s.signal) })
	// A median's variance is pi/2 times a mean's. The spread of few calls can be small by luck: 5% is the least believed.
	s.signalVar = sq(math.Max(spread, 0.05)) * (math.Pi/2/float64(e.taken) + 1/math.Max(expectedBy, 1))
	counted := 0
	for i := range s.after {
		if s.after[i].counterKnown {
			buf[counted] = s.after[i].counter
			counted++
		}
	}
	if counted >= minShiftCalls {
		s.counter, s.counterKnown = medianOf(buf[:counted]), true
	}
	return s, true
}

// describe fills in the numbers that people are shown.
func (v *Verdict) describe(shifts []shift) {
	signal, counter, counted := 0.0, 0.0, 0
	for i := range shifts {
		s := &shifts[i]
		signal += s.signal
		if s.counterKnown {
			counter += s.counter
			counted++
		}
		if v.Buckets == 0 || s.bytes < v.AtBytes {
			v.AtBytes, v.AddedNs = s.bytes, s.addedNs()
		}
		v.Buckets++
	}
	v.Signal = math.Exp(signal / float64(len(shifts)))
	if counted > 0 {
		v.Counter = math.Exp(counter / float64(counted))
	}
}

// classify is the table of docs/design.md. complete says that no better evidence is to be expected from these buckets.
func classify(shifts []shift, up, complete bool) Diagnosis {
	// The buckets that alarmed say whether there is a change at all, and whether the counter took part in it.
	signal, counter, weights := 0.0, 0.0, 0.0
	counterKnown := true
	smallest := (*shift)(nil)
	for i := range shifts {
		s := &shifts[i]
		if !s.alarmed {
			continue
		}
		w := 1 / s.signalVar
		signal, counter, weights = signal+w*s.signal, counter+w*s.counter, weights+w
		counterKnown = counterKnown && s.counterKnown
		if smallest == nil || s.bytes < smallest.bytes {
			smallest = s
		}
	}
	if smallest == nil {
		return DiagnosisUnknown
	}
	signal, counter = signal/weights, counter/weights
	error2 := 2 / math.Sqrt(weights)
	switch {
	case !up && signal < -math.Max(minLogShift, error2):
		return DiagnosisRecovered
	case !up || signal < math.Max(minLogShift, error2):
		return DiagnosisUnknown
	}
	if counterKnown && counter < flatCounterShare*signal {
		// Both are known to within error2; until the difference stands out of it the next calls decide.
		if signal-counter < 1.5*error2 && !complete {
			return DiagnosisUnknown
		}
		return DiagnosisRemoteSide
	}

	kind := shape(shifts, complete)
	if smallest.addedNs() >= minQuantumNs && math.Exp(smallest.signal) >= minQuantumRatio {
		if kind == shapeConstant || kind != shapeGrowth && smallest.bytes <= maxSmallBytes || quantised(shifts) {
			return DiagnosisCPUContention
		}
	}
	switch kind {
	case shapeConstant:
		return DiagnosisBackendFallback
	case shapeGrowth:
		return DiagnosisCongestion
	}
	return DiagnosisUnknown
}

type shapeKind uint8

const (
	shapeOpen shapeKind = iota // cannot be told
	shapeConstant
	shapeGrowth
)

// shape compares three one-parameter models of the time added at each size: a constant, a multiple of the time before,
// a multiple of the bytes. The last two both are growth. It needs sizes apart by minSizesApart.
func shape(shifts []shift, complete bool) shapeKind {
	lo, hi := math.Inf(1), 0.0
	for i := range shifts {
		lo, hi = math.Min(lo, shifts[i].bytes), math.Max(hi, shifts[i].bytes)
	}
	if len(shifts) < 2 || hi < minSizesApart*lo {
		return shapeOpen
	}
	constant := misfit(shifts, func(s *shift) float64 { return 1 / s.beforeNs })
	byTime := misfit(shifts, func(*shift) float64 { return 1 })
	byBytes := misfit(shifts, func(s *shift) float64 { return s.bytes / s.beforeNs })
	growth := math.Min(byTime, byBytes)
	// When even the better model misses by more than noise, its misfit is the yardstick (quasi-likelihood).
	freedom := float64(len(shifts) - 1)
	scale := math.Max(1, math.Min(constant, growth)/freedom)
	odds := (growth - constant) / (2 * scale)
	enough := decisiveLogOdds
	if complete {
		enough = completeLogOdds
	}
	switch {
	case odds >= enough:
		return shapeConstant
	case odds <= -enough:
		return shapeGrowth
	}
	// Where all times before are alike (small sizes), a constant and a multiple are the same thing. The table's word for
	// time that did not grow with bytes is "constant", if it was the same at all sizes at all.
	if complete && (byBytes-constant)/(2*scale) >= decisiveLogOdds && constant <= maxMisfit*freedom {
		return shapeConstant
	}
	return shapeOpen
}

// misfit is the chi-square of the best c >= 0 in after = before * (1 + c*p), p the model's profile by bucket.
func misfit(shifts []shift, profile func(*shift) float64) float64 {
	most := 0.0
	for i := range shifts {
		s := &shifts[i]
		most = math.Max(most, (math.Exp(s.signal)-1)/profile(s))
	}
	if most <= 0 {
		most = math.SmallestNonzeroFloat64
	}
	at := func(logC float64) float64 {
		sum := 0.0
		for i := range shifts {
			s := &shifts[i]
			sum += sq(s.signal-math.Log1p(math.Exp(logC)*profile(s))) / s.signalVar
		}
		return sum
	}
	// The best c lies below the largest that any bucket asks for. A grid finds the valley, golden section its floor.
	const steps, span = 40, 12.0 // e^-12: nothing added
	top := math.Log(most)
	best := 0
	for i := 1; i <= steps; i++ {
		if at(top-span*float64(i)/steps) < at(top-span*float64(best)/steps) {
			best = i
		}
	}
	lo, hi := top-span*float64(best+1)/steps, top-span*float64(best-1)/steps
	const golden = 0.6180339887498949
	for range 20 {
		a, b := hi-golden*(hi-lo), lo+golden*(hi-lo)
		if at(a) < at(b) {
			hi = b
		} else {
			lo = a
		}
	}
	return at((lo + hi) / 2)
}

// quantised says whether the time added to single calls keeps to multiples of a scheduler quantum, several of them.
func quantised(shifts []shift) bool {
	const minCalls, near = 16, 0.05 // by chance half of 16 calls are that near once in 8,000 cases
	for _, q := range schedulerQuantaNs {
		var off []float64
		multiples := map[float64]bool{}
		for i := range shifts {
			for _, c := range shifts[i].after {
				before := math.Exp(c.before)
				if x := before * (math.Exp(c.signal) - 1) / q; x >= 0.7 {
					m := math.Round(x)
					off = append(off, math.Abs(x-m))
					multiples[m] = true
				}
			}
		}
		if len(off) >= minCalls && len(multiples) >= 2 && medianOf(off) < near {
			return true
		}
	}
	return false
}

func sq(x float64) float64 { return x * x }
