package tuner

import (
	"math"
	"testing"
)

// sampledSteps plays a program's steps to whoever hears the calls of sampled epochs, one in every, from a call on: a call's kind, and when it
// began.
func sampledSteps(order []uint64, from uint64, every int, hear func(seq, kind uint64, startNs int64) bool) (calls uint64) {
	for seq := from; ; seq++ {
		if seq/epochCalls%uint64(every) == 0 && seq%epochCalls != 0 {
			at := (seq - from) % uint64(len(order))
			inStep := math.Pow(float64(at)/float64(len(order)), 2) // calls come closer together at its beginning
			if !hear(seq, order[at], 1e9+int64(1e6*(float64((seq-from)/uint64(len(order)))+inStep))) {
				return seq - from + 1
			}
		}
	}
}

// Steps of any number of calls are measured by an eighth of their calls, a quarter or a half, wherever a block begins, exactly, and in half as long again as
// with all of them; or, where steps are short, in some more epochs.
func TestFewCallsMeasureSteps(t *testing.T) {
	times := map[int]int{}
	for period := 1; period <= rhythmLongest; period++ {
		every := auditEvery(period)
		times[every]++
		whole := float64((auditLead + auditSteps) * period)
		var most, all float64
		froms := 16 * epochCalls
		for from := range froms {
			var b auditBlock
			calls := sampledSteps(make([]uint64, period), uint64(from), every, func(seq, _ uint64, startNs int64) bool {
				b.hear(seq, int(seq)%period, period, startNs, 0)
				return !b.whole()
			})
			most, all = max(most, float64(calls)), all+float64(calls)
			for _, logNs := range b.logNs {
				if math.Abs(logNs-math.Log(1e6)) > 1e-3 {
					t.Fatalf("%d calls, one epoch in %d: a step of %.0f ns", period, every, math.Exp(logNs))
				}
			}
		}
		if limit := max(auditShort, auditLonger*whole); most > 2*limit || all/float64(froms) > 1.3*limit {
			t.Errorf("%d calls, one epoch in %d: a block takes %.0f calls in the mean and %.0f at most, of %.0f with all", period, every, all/float64(froms), most, whole)
		}
	}
	t.Logf("steps of 1 to %d calls, by epochs between two sampled ones: %v", rhythmLongest, times)
	if times[1] > 0 || times[auditThin] < rhythmLongest/2 {
		t.Errorf("by epochs between two sampled ones: %v", times)
	}
}

// Behind other calls a step goes on being measured by some of its calls, as the one that it was, once it is seen where it begins now, or where
// that cannot be seen.
func TestStepsAreMeasuredBehindOtherCalls(t *testing.T) {
	for _, period := range []int{2, 4, 57, 75, 130, 256} {
		order := make([]uint64, period)
		for i := range order {
			order[i] = 1
		}
		order[0], order[period-1] = 2, 3
		for _, every := range []int{1, auditEvery(period)} {
			for other := range uint64(min(period, 20)) {
				r := rhythm{period: period, order: order, fixed: true}
				for seq := range uint64(2 * rhythmCalls / period * period) {
					r.hear(seq, order[seq%uint64(period)])
				}
				var b auditBlock
				begins := uint64(2*rhythmCalls/period*period) + other
				sampledSteps(order, begins, every, func(seq, kind uint64, startNs int64) bool {
					if r.hear(seq, kind) {
						t.Fatalf("%d calls, one epoch in %d, %d others: another step of %d", period, every, other, r.period)
					}
					if at, ok := r.place(seq); ok {
						b.hear(seq, at, r.period, startNs, 0)
					} else {
						b.lose()
					}
					return seq < begins+uint64(20*max(period, 200))
				})
				for _, logNs := range b.logNs {
					if math.Abs(logNs-math.Log(1e6)) > 1e-3 {
						t.Fatalf("%d calls, one epoch in %d, %d others: a step of %.0f ns", period, every, other, math.Exp(logNs))
					}
				}
				if b.steps < auditSteps {
					t.Errorf("%d calls, one epoch in %d, %d others: %d steps measured", period, every, other, b.steps)
				}
			}
		}
	}
}
