package agents

import (
	"math"
	"slices"
)

const (
	minShiftCalls = 4 // calls after the change before a bucket has a say

	// A change below this, in log units, is none to explain: a false alarm, or less than half of what detectors look for.
	minLogShift = 0.035

	// Costs that fall by less than this share of their rise have eased and not recovered.
	minFallShare = 0.4

	// What competing for cores looks like. Measured on 4x H200 over sockets, NCCL 2.28.9, a core short: 50 us became
	// 8,000 to 26,000 us at 1 to 64 KiB; other load never took a call beyond 4x. 700 us is below the shortest base
	// slice of Linux's scheduler (0.7 ms, sysctl_sched_base_slice).
	minQuantumNs     = 700e3
	minQuantumRatio  = 8
	hugeRatio        = 32
	maxSmallBytes    = 64 << 10
	minSizesApart    = 4.0 // sizes of calls closer than this cannot tell a constant from growth
	minPutsApart     = 2.0 // those of puts: each is one message, which takes its bytes' time and no other algorithm's
	minTimesApart    = 1.5 // times nearer than this say as little of a multiple of the time
	decisiveLogOdds  = 3.0 // while more evidence will come
	completeLogOdds  = 1.0 // when no more will
	maxFitted        = 64  // buckets of one communicator that are compared
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
	countedNs    float64 // the counter before
	counterKnown bool
	alarmed      bool
	put          bool  // and no call
	byGPU        bool  // no CPU has a part in it
	queue        uint8 // puts that there may be in a put's queue
	after        []deviation
	kinds        *[]shift // apart by queue; nil: all are of one put
}

func (s *shift) addedNs() float64 { return s.beforeNs * (math.Exp(s.signal) - 1) }

// shift sums up a bucket's evidence by medians, so that spikes weigh as calls and not by their height.
func (e *evidence) shift() (shift, bool) {
	if e.taken < minShiftCalls {
		return shift{}, false
	}
	if at := [...]int{e.taken, e.excursion}; e.summedAt != at {
		e.summed, e.summedAt = e.sum(), at
		if e.taken >= staleCalls {
			e.most = math.Max(e.most, e.summed.signal)
		}
	}
	e.summed.bytes, e.summed.alarmed, e.summed.put = e.bytes, e.alarmed, e.detector != nil && e.detector.puts
	e.summed.byGPU = e.byGPU
	return e.summed, true
}

// sum is shift but for what may change without a call.
func (e *evidence) sum() shift {
	after := e.after[:e.taken]
	if e.fresh() >= evidenceCalls/2 { // enough without the calls that made the alarm
		after = after[e.excursion:]
	}
	s := sumOf(after)
	if e.longest > 1 {
		e.kinds = apart(after, e.longest, e.kinds[:0])
		s.kinds = &e.kinds
	}
	return s
}

// sumOf sums up some of the calls of a bucket.
func sumOf(after []deviation) shift {
	s := shift{after: after, queue: 1}
	n := len(s.after)
	var few [recentCalls + evidenceCalls]float64
	buf := few[:]
	if n > len(buf) {
		buf = make([]float64, n)
	}
	column := func(f func(*deviation) float64) float64 {
		for i := range s.after {
			buf[i] = f(&s.after[i])
		}
		return medianOf(buf[:n])
	}
	s.signal = column(func(c *deviation) float64 { return c.signal })
	s.beforeNs = math.Exp(column(func(c *deviation) float64 { return c.before }))
	expectedBy := column(func(c *deviation) float64 { return c.expectedBy })
	spread := sigmaPerMAD * column(func(c *deviation) float64 { return math.Abs(c.signal - s.signal) })
	s.signalVar = medianVariance(spread, n, expectedBy)
	counted := 0
	for i := range s.after {
		if s.after[i].counterKnown {
			buf[counted] = s.after[i].counter
			counted++
			s.countedNs = math.Exp(s.after[i].beforeCount) // one size's are near each other
		}
	}
	if counted >= minShiftCalls {
		s.counter, s.counterKnown = medianOf(buf[:counted]), true
	}
	return s
}

// medianVariance is that of n calls' median, against an expectation that rests on so many. A median's variance is pi/2 times a
// mean's. The spread of few calls can be small by luck: 5% is the least believed.
func medianVariance(spread float64, n int, expectedBy float64) float64 {
	return sq(math.Max(spread, 0.05)) * (math.Pi/2/float64(n) + 1/math.Max(expectedBy, 1))
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

// circumstances are what classify needs to know beside the buckets' shifts.
type circumstances struct {
	up       bool    // direction of the alarm
	risen    float64 // log units that costs stood above those before the first change
	fresh    int     // calls after the alarms in the buckets that alarmed
	settled  bool    // the evidence of the buckets that alarmed is complete
	complete bool    // that of all buckets is: no better is to be expected
}

// classify is the table of docs/design.md, decision 11. DiagnosisNone: nothing that lasts.
func classify(shifts []shift, is circumstances) Diagnosis {
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
	case is.up && is.settled && is.risen > 0 && -signal > math.Max(math.Max(error2, minLogShift), minFallShare*is.risen):
		// It was over within so few calls that detectors had not got used to it, and so was what had gone on before it.
		return DiagnosisRecovered
	case !is.up && -signal < minFallShare*is.risen:
		return DiagnosisNone
	case !is.up && is.fresh < minShiftCalls: // where calls vary much, a few quick ones in a row are no recovery
		return DiagnosisUnknown
	case !is.up && -signal > math.Max(error2, minLogShift):
		return DiagnosisRecovered
	case !is.up || signal < math.Max(minLogShift, error2):
		if is.settled {
			return DiagnosisNone
		}
		return DiagnosisUnknown
	}
	if counterKnown && counter < flatCounterShare*signal {
		// Both are known to within error2; until the difference stands out of it the next calls decide.
		if signal-counter < 1.5*error2 && !is.settled {
			return DiagnosisUnknown
		}
		return DiagnosisRemoteSide
	}

	fit := compareShapes(shifts)
	if !smallest.byGPU && smallest.addedNs() >= minQuantumNs && math.Exp(smallest.signal) >= minQuantumRatio {
		small := smallest.bytes <= maxSmallBytes && (fit.odds > -decisiveLogOdds || math.Exp(smallest.signal) >= hugeRatio)
		if small || fit.odds >= decisiveLogOdds || quantised(shifts) {
			return DiagnosisCPUContention
		}
	}
	enough := decisiveLogOdds
	if is.complete {
		enough = completeLogOdds
	}
	switch {
	case fit.odds >= enough && (!fit.near || is.fresh >= settledCalls):
		return DiagnosisBackendFallback
	case fit.odds <= -enough && (is.complete || !waiting(shifts)):
		return DiagnosisCongestion
	case is.complete && fit.notByBytes && fit.good:
		// Where all times before are alike (small sizes), a constant and a multiple are the same thing. The table's word
		// for time that did not grow with bytes is "constant", if it was the same at all sizes.
		return DiagnosisBackendFallback
	}
	return DiagnosisUnknown
}

// waiting says that some bucket's calls take as long as if they waited for a core, but not the smallest's. As not every
// call waits, that may be luck while there are few.
func waiting(shifts []shift) bool {
	for i := range shifts {
		if s := &shifts[i]; !s.byGPU && s.addedNs() >= minQuantumNs && math.Exp(s.signal) >= minQuantumRatio {
			return true
		}
	}
	return false
}

// fit says how the time added depends on size.
type fit struct {
	odds       float64 // log odds of a constant against growth; 0: cannot be told
	notByBytes bool    // decisively no multiple of the bytes
	good       bool    // a constant describes it, up to noise
	near       bool    // times are too near each other for a multiple of them to be told from a constant: growth is that with bytes
}

// compareShapes compares three one-parameter models of the time added at each size: a constant, a multiple of the time
// before, a multiple of the bytes. The last two both are growth. It needs sizes apart by minSizesApart.
//
// What was added to counters is asked, too, where all are known: a slower backend adds as much to them, and they are less
// than signals, so a constant shows more. Both count by half, for they are of the same calls.
func compareShapes(shifts []shift) fit {
	if shifts = kindsOf(shifts); len(shifts) == 0 {
		return fit{}
	}
	lo, hi := math.Inf(1), 0.0
	least, longest := math.Inf(1), 0.0
	counted, alone := true, slices.ContainsFunc(shifts, func(s shift) bool { return s.queue == 1 })
	for i := range shifts {
		s := &shifts[i]
		lo, hi = math.Min(lo, s.bytes), math.Max(hi, s.bytes)
		if s.queue == 1 || !alone { // others wait for their queue, too
			least, longest = math.Min(least, s.beforeNs), math.Max(longest, s.beforeNs)
		}
		counted = counted && s.counterKnown
	}
	apart := minSizesApart
	if shifts[0].put {
		apart = minPutsApart
	}
	if hi < apart*lo {
		return fit{}
	}
	constant, byTime, byBytes := misfits(shifts, func(s *shift) (float64, float64) { return s.signal, s.beforeNs })
	if counted {
		c, t, b := misfits(shifts, func(s *shift) (float64, float64) { return s.counter, s.countedNs })
		constant, byTime, byBytes = (constant+c)/2, (byTime+t)/2, (byBytes+b)/2
	}
	near := longest <= minTimesApart*least
	growth := byBytes
	if !near {
		growth = math.Min(byTime, byBytes)
	}
	// When even the better model misses by more than noise, its misfit is the yardstick (quasi-likelihood).
	freedom := float64(len(shifts) - 1)
	scale := 2 * math.Max(1, math.Min(constant, growth)/freedom)
	return fit{(growth - constant) / scale, (byBytes-constant)/scale >= decisiveLogOdds, constant <= maxMisfit*freedom, near}
}

// misfits of one latency by the three models; of gives its log ratio and what it was before.
func misfits(shifts []shift, of func(*shift) (ratio, beforeNs float64)) (constant, byTime, byBytes float64) {
	var ratios, profile, most [maxFitted]float64
	model := func(each bool, p func(bytes, beforeNs float64) float64) float64 {
		for i := range shifts {
			ratio, beforeNs := of(&shifts[i])
			ratios[i], profile[i] = ratio, p(shifts[i].bytes, beforeNs)
			if most[i] = profile[i]; each {
				most[i] *= float64(shifts[i].queue)
			}
		}
		return misfit(shifts, ratios[:len(shifts)], profile[:len(shifts)], most[:len(shifts)])
	}
	return model(true, func(_, beforeNs float64) float64 { return 1 / beforeNs }),
		model(false, func(_, _ float64) float64 { return 1 }),
		model(true, func(bytes, beforeNs float64) float64 { return bytes / beforeNs })
}

// misfit is the chi-square of the best c >= 0 in after = before * (1 + c*p), p the model's profile by bucket, from p to atMost.
func misfit(shifts []shift, ratios, p, atMost []float64) float64 {
	most := 0.0
	for i := range shifts {
		most = math.Max(most, (math.Exp(ratios[i])-1)/p[i])
	}
	if most <= 0 {
		most = math.SmallestNonzeroFloat64
	}
	at := func(c float64) float64 {
		sum := 0.0
		for i := range shifts {
			off := ratios[i] - math.Log1p(c*p[i])
			if off > 0 && atMost[i] > p[i] {
				off = math.Max(0, ratios[i]-math.Log1p(c*atMost[i]))
			}
			sum += sq(off) / shifts[i].signalVar
		}
		return sum
	}
	// The best c lies below the largest that any bucket asks for. A coarse search finds the valley, golden section its
	// floor; in 2^-16 of the largest nothing is added any more.
	best, c := 0, most
	for i, lowest := 0, math.Inf(1); i <= 32; i++ {
		if v := at(c); v < lowest {
			best, lowest = i, v
		}
		c *= math.Sqrt2 / 2
	}
	const golden = 0.6180339887498949
	lo, hi := most*math.Exp2(-float64(best+1)/2), most*math.Exp2(-float64(best-1)/2)
	for range 12 {
		if a, b := hi-golden*(hi-lo), lo+golden*(hi-lo); at(a) < at(b) {
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
