package agents

import (
	"math"
	"math/rand/v2"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// backWay is a way whose puts take 10 us, and more with more bytes on a slow link.
type backWay struct {
	rng   *rand.Rand
	watch *ginWatch
	at    state.Ns
}

// backWays makes ways of the same design and different noise.
func backWays(t *testing.T) func(trial uint64) *backWay {
	t.Helper()
	seed, design := detectorSeed(t), mustDesign(t)
	return func(trial uint64) *backWay {
		return &backWay{rng: rand.New(rand.NewPCG(seed, trial)), watch: newGinWatch(design)}
	}
}

func (w *backWay) put(bytes uint64, ctas uint8, ns float64) (Alarm, Diagnosis) {
	ns *= math.Exp(0.06 * w.rng.NormFloat64())
	w.at += 1e6
	o := state.Observation{AtNs: w.at, Action: actions.Action{Path: actions.PathGIN, Backend: actions.BackendGDAKI, Channels: ctas, Contexts: ctas}, Bytes: bytes,
		SignalNs: state.Ns(ns), CounterNs: state.Ns(ns / 2)}
	a, v := w.watch.observe(o)
	return a, v.Diagnosis
}

func slowLink(bytes uint64) float64 { return 10e3 + float64(bytes)*10 }

// A program leaves a link that has become slow within some thirty puts, and comes back with one size of them: sixteen puts later all is
// known to be as it was, and the next fault, a constant, is found within as many and not taken for the end of the first.
func TestEndOfAFaultThatAProgramLeft(t *testing.T) {
	const trials = 100
	over, early, right, way := 0, 0, 0, backWays(t)
	for trial := range uint64(trials) {
		w := way(trial)
		sizes := []uint64{2048, 16384, 32768}
		for i := range 600 {
			w.put(sizes[i/4%3], 4, 10e3)
		}
		for i := range 28 {
			w.put(sizes[i/4%3], 4, slowLink(sizes[i/4%3]))
		}
		d := DiagnosisNone
		for range 16 {
			_, d = w.put(16384, 4, 10e3)
		}
		if d == DiagnosisRecovered {
			over++
		}
		for range 20 {
			w.put(16384, 4, 10e3)
		}
		noticed := false
		for i := range 120 {
			a, now := w.put(sizes[i/4%3], 4, 12e3)
			if d = now; a.Raised && !noticed && i < 24 {
				noticed = true
				early++
			}
		}
		if d == DiagnosisBackendFallback {
			right++
		}
	}
	t.Logf("of %d: %d over within 16 puts; next fault within 24 in %d, right in %d", trials, over, early, right)
	if over < 95 || early < 95 || right < 95 {
		t.Error("want 95 of 100")
	}
}

// A link that was thirty times slower and is three times slower now is nearer to what it was, and not back.
func TestLinkThatEasesIsNotBack(t *testing.T) {
	told, way := 0, backWays(t)
	for trial := range uint64(50) {
		w := way(trial)
		for i := range 400 {
			w.put([]uint64{2048, 32768}[i/4%2], 4, 10e3)
		}
		for i := range 24 {
			w.put([]uint64{2048, 32768}[i/4%2], 4, 300e3)
		}
		for range 12 {
			if _, d := w.put(32768, 4, 30e3); d == DiagnosisRecovered {
				told++
				break
			}
		}
	}
	if told > 1 {
		t.Errorf("%d of 50 are told to be back", told)
	}
}

// A kind of puts of which sixteen were seen may be expected to take what it seldom does, as much as with a fault on. That says nothing of
// the fault's end: the kind has not risen.
func TestKindThatHasNotRisenTellsNoEnd(t *testing.T) {
	told, way := 0, backWays(t)
	for trial := range uint64(50) {
		w := way(trial)
		for i := range 600 {
			w.put([]uint64{2048, 16384}[i/4%2], 4, 10e3)
		}
		for range 16 {
			w.put(16384, 2, 12.2e3)
		}
		for i := range 600 {
			ctas := uint8(4)
			if i > 100 && i%60 < 40 {
				ctas = 2
			}
			if _, d := w.put([]uint64{2048, 16384}[i/4%2], ctas, 12.2e3); d == DiagnosisRecovered {
				told++
				break
			}
		}
	}
	if told > 1 {
		t.Errorf("%d of 50 told of an end in the middle of a fault", told)
	}
}

// Puts that the GPU gives to the NIC itself wait for no cores, however long they take and whatever quanta it comes to.
func TestPutsByTheGPUWaitForNoCores(t *testing.T) {
	way := backWays(t)
	for trial := range uint64(20) {
		w := way(trial)
		sizes := []uint64{8192, 32768}
		for i := range 400 {
			w.put(sizes[i/4%2], 4, 10e3)
		}
		d := DiagnosisNone
		for i := range 100 {
			_, d = w.put(sizes[i/4%2], 4, float64(800e3*(1+w.rng.IntN(3))))
		}
		if d == DiagnosisCPUContention || d == DiagnosisNone {
			t.Fatalf("%v", d)
		}
	}
}

// The middle of what is expected is that of the calls, where their noise is skewed, too: medians are held against it.
func TestExpectationKnowsTheMiddle(t *testing.T) {
	rng := rand.New(rand.NewPCG(detectorSeed(t), 11))
	d := NewPutDetector(mustDesign(t))
	for range 2000 { // one in four is the first of its batch and takes half as long again
		ns := 5e3 * math.Exp(0.03*rng.NormFloat64())
		if rng.IntN(4) == 0 {
			ns *= 1.5
		}
		d.Observe(state.Observation{Action: actions.Default, Bytes: 2048, SignalNs: state.Ns(2 * ns), CounterNs: state.Ns(ns)})
	}
	e := &d.actions[0].counter
	if mean, middle := math.Exp(e.mean), math.Exp(e.middle); mean < 5300 || middle < 4950 || middle > 5150 {
		t.Errorf("mean %.0f, middle %.0f", mean, middle)
	}
}
