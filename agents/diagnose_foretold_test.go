package agents

import (
	"math"
	"testing"

	"dynamiccl/actions"
)

// Of a size whose puts wait for others of their queue, as it comes, the first ones under a fault are quick. It alarms when others have got
// used to the constant. It is the fault that is open, and no second one in that size alone, which would grow with bytes.
func TestSizeThatAlarmsLateIsNoSecondFault(t *testing.T) {
	const trials = 100
	right, began, way := 0, 0, backWays(t)
	for trial := range uint64(trials) {
		w := way(trial)
		puts := func(n int, eachNs float64, place func(i int) int) (d Diagnosis) {
			for i := range n {
				if i%5 == 4 {
					_, d = w.queuedPut(32768, 2, place(i/5), eachNs)
				} else {
					_, d = w.queuedPut([]uint64{1024, 2048, 16384}[i/4%3], 1, 1, eachNs)
				}
			}
			return d
		}
		puts(800, 0, func(i int) int { return 1 + i%2 })
		puts(80, 2.6e3, func(int) int { return 1 })
		since := w.watch.diagnoser.since
		d := puts(400, 2.6e3, func(int) int { return 2 })
		if w.watch.diagnoser.since != since {
			began++
		}
		if d == DiagnosisBackendFallback {
			right++
		}
	}
	t.Logf("%d of %d right, %d times the fault was taken for a second one", right, trials, began)
	if right < 95 || began > 5 {
		t.Error("want 95 of 100, and the same fault all the while")
	}
}

// foretold knows what a diagnosis says of a size that has not alarmed yet, and no more than that.
func TestForetoldIsWhatTheDiagnosisSays(t *testing.T) {
	for _, c := range []struct {
		name              string
		fault             Diagnosis
		ctas              uint8
		knownNs, alarmNs  float64 // added to puts of 2 KiB, and to those of 32 KiB that alarm
		down, alarmed, is bool
	}{
		{"the constant", DiagnosisBackendFallback, 4, 2.6e3, 2.5e3, false, false, true},
		{"the constant twice, in a queue", DiagnosisBackendFallback, 8, 2.6e3, 5.2e3, false, false, true},
		{"what a byte takes longer", DiagnosisCongestion, 4, 10e3, 160e3, false, false, true},
		{"far more than a constant", DiagnosisBackendFallback, 4, 2.6e3, 160e3, false, false, false},
		{"far less than its bytes say", DiagnosisCongestion, 4, 100e3, 20e3, false, false, false},
		{"it had alarmed", DiagnosisBackendFallback, 4, 2.6e3, 2.6e3, false, true, false},
		{"costs that fell", DiagnosisBackendFallback, 4, 2.6e3, -2.6e3, true, false, false},
		{"a receiver", DiagnosisRemoteSide, 4, 2.6e3, 2.6e3, false, false, false},
	} {
		d, det := NewDiagnoser(), NewPutDetector(mustDesign(t))
		d.open, d.up, d.decided, d.verdict.Diagnosis = true, true, true, c.fault
		d.shifts = []shift{{bytes: 2048, beforeNs: 10e3, signal: math.Log1p(c.knownNs / 10e3), alarmed: true, queue: 1}}
		d.measure()
		key := expectationKey{action: actions.Action{Path: actions.PathGIN, Channels: c.ctas, Contexts: 4}}
		e := &evidence{detector: det, bytes: 32768, alarmed: c.alarmed, frozen: []reference{{key: key, signal: math.Log(11e3)}}, seen: 1}
		e.recent[0].key = key
		a := Alarm{Raised: true, Up: !c.down, Signal: Change{BeforeNs: 11e3, AfterNs: 11e3 + c.alarmNs}}
		if got := d.foretold(e, a); got != c.is {
			t.Errorf("%s: foretold %v, want %v", c.name, got, c.is)
		}
	}
}

// What a link adds to a byte is known by two sizes. A program that comes back to it in three others, which it had never made under the
// fault, is told within sixteen puts that all is as it was, by the first few of each; and not while the link is slow.
func TestEndInSizesThatDidNotComeUnderTheFault(t *testing.T) {
	const trials = 100
	over, early, way := 0, 0, backWays(t)
	for trial := range uint64(2 * trials) {
		w := way(trial)
		for i := range 1000 {
			w.put([]uint64{2048, 4096, 8192, 16384, 32768}[i/4%5], 4, 10e3)
		}
		for i := range 40 {
			bytes := []uint64{2048, 32768}[i/4%2]
			w.put(bytes, 4, slowLink(bytes))
		}
		slow, d := trial%2 == 1, DiagnosisNone
		for i := range 16 {
			bytes := []uint64{4096, 8192, 16384}[i/2%3]
			if slow {
				_, d = w.put(bytes, 4, slowLink(bytes))
			} else {
				_, d = w.put(bytes, 4, 10e3)
			}
		}
		switch {
		case d == DiagnosisRecovered && slow:
			early++
		case d == DiagnosisRecovered:
			over++
		}
	}
	t.Logf("%d of %d ends told within 16 puts, %d while the link was slow", over, trials, early)
	if over < 95 || early > 0 {
		t.Error("want 95 of 100, and none")
	}
}
