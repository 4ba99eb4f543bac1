package agents

import (
	"math"
	"slices"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// queuedPut is a put over four contexts with so many CTAs to each, which is the place-th in its queue.
func (w *backWay) queuedPut(bytes uint64, queue, place int, eachNs float64) (Alarm, Diagnosis) {
	w.at += 1e6
	ns := (10e3 + 5e3*float64(place-1) + eachNs*float64(place)) * math.Exp(0.04*w.rng.NormFloat64())
	o := state.Observation{AtNs: w.at, Action: actions.Action{Path: actions.PathGIN, Backend: actions.BackendGDAKI, Channels: uint8(4 * queue), Contexts: 4}, Bytes: bytes,
		SignalNs: state.Ns(ns), CounterNs: state.Ns(ns / 2)}
	a, v := w.watch.observe(o)
	return a, v.Diagnosis
}

// A constant on each put is more on puts that wait for others of their queue, which take longer as it is: it is no multiple of the time, nor
// does it grow with bytes because the largest size has such puts. What does grow with bytes is told from it as ever.
func TestConstantOfQueuedPutsIsNoGrowth(t *testing.T) {
	const trials = 100
	way := backWays(t)
	turns := []struct {
		bytes        uint64
		queue, place int
	}{{2048, 1, 1}, {16384, 1, 1}, {32768, 2, 2}, {32768, 2, 2}, {32768, 1, 1}}
	for fault, each := range map[Diagnosis]func(bytes uint64) float64{
		DiagnosisBackendFallback: func(uint64) float64 { return 2.6e3 },
		DiagnosisCongestion:      func(bytes uint64) float64 { return float64(bytes) / 8 },
	} {
		right := 0
		for trial := range uint64(trials) {
			w := way(trial)
			for i := range 400 {
				turn := turns[i/4%5]
				w.queuedPut(turn.bytes, turn.queue, turn.place, 0)
			}
			d := DiagnosisNone
			for i := range 160 {
				turn := turns[i/4%5]
				_, d = w.queuedPut(turn.bytes, turn.queue, turn.place, each(turn.bytes))
			}
			if d == fault {
				right++
			}
		}
		t.Logf("%v: %d of %d right", fault, right, trials)
		if right < 95 {
			t.Errorf("%v: want 95 of 100", fault)
		}
	}
}

// What a live way showed when 1.3 us were added each way: 32 KiB of two CTAs to a context took 17 us and 4.7 more, others 11 and 2.8. All
// of it is a constant, of which the former had two; times of puts that are alone in their queues are near each other, and without the
// latter the former says nothing of a multiple.
func TestShapeOfQueuedPuts(t *testing.T) {
	put := func(bytes, beforeNs, addedNs float64, queue uint8) shift {
		s := shift{bytes: bytes, beforeNs: beforeNs, signal: math.Log1p(addedNs / beforeNs), signalVar: 0.02 * 0.02, queue: queue, put: true}
		if queue > 1 {
			s.kinds = &[]shift{s}
		}
		return s
	}
	live := []shift{put(2048, 10.7e3, 2.7e3, 1), put(8192, 10.9e3, 3.0e3, 1), put(16384, 11.1e3, 2.8e3, 1), put(32768, 17e3, 4.7e3, 2)}
	if f := compareShapes(live); f.odds < decisiveLogOdds || !f.near || !f.good {
		t.Errorf("%+v, want a constant, times that are near", f)
	}
	if f := compareShapes([]shift{put(2048, 10.7e3, 1e3, 1), put(8192, 10.9e3, 4e3, 1), put(32768, 17e3, 27e3, 2)}); f.odds > -decisiveLogOdds {
		t.Errorf("%+v, want growth with bytes", f)
	}
	alone := slices.Clone(live)
	alone[3].queue, alone[3].kinds = 1, nil
	if f := compareShapes(alone); f.odds > -decisiveLogOdds || f.near {
		t.Errorf("%+v, want a multiple of the time where no put waits for another", f)
	}
}

// Of a size's frozen expectations those of queued puts are corrected by queued puts alone: these take 10 or 15 us, as it comes.
func TestQueuedPutsCorrectTheirOwnExpectation(t *testing.T) {
	w := newGinWatch(mustDesign(t))
	d := NewPutDetector(w.design)
	e := &evidence{detector: d}
	key := func(ctas uint8) expectationKey {
		return expectationKey{action: actions.Action{Path: actions.PathGIN, Channels: ctas, Contexts: 4}}
	}
	e.frozen = []reference{{key: key(8), signal: 9.7, expectedBy: 100}, {key: key(4), signal: 9.2, expectedBy: 100}}
	for i := range 20 {
		s := sighting{call: uint64(i + 1), key: key(8), signal: 9.5}
		if i%2 == 1 {
			s.key, s.signal = key(4), 9.2
		}
		e.recent[i] = s
		e.seen++
	}
	e.start(21)
	if got := [2]float64{e.frozen[0].signal, e.frozen[1].signal}; got != [2]float64{9.5, 9.2} {
		t.Errorf("%v, want 9.5 of queued puts, which were below, and 9.2 of others, which were not", got)
	}
}
