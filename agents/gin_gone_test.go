package agents

import (
	"testing"

	"dynamiccl/state"
)

// In a program sizes of puts come and go: with other choices for its calls they are cut otherwise. One that stops a few calls
// behind a change must not keep the others from being enough. Small puts alone, which all take as long before: what is added
// is a constant if it is the same at all of them.
func TestDiagnosesWhereASizeStops(t *testing.T) {
	const most, left = 16 << 10, 6
	trials, right := 0, 0
	said := map[Diagnosis]int{}
	for _, trial := range readGinSeries(t) {
		if trial.fault != "backend-fallback" {
			continue
		}
		trials++
		w := newGinWatch(mustDesign(t))
		var stops uint64
		for _, c := range trial.phases[0] {
			if c.bytes <= most {
				w.call(c)
				stops = max(stops, c.bytes)
			}
		}
		var v Verdict
		seen := 0
		for range 4 { // long enough for the sizes that stay
			for _, c := range trial.phases[1] {
				if c.bytes == stops {
					seen++
				}
				if c.bytes > most || c.bytes == stops && seen > left {
					continue
				}
				_, v = w.call(c)
			}
		}
		said[v.Diagnosis]++
		if v.Diagnosis == DiagnosisBackendFallback {
			right++
		}
	}
	t.Logf("%d trials, said %v", trials, said)
	if trials != 100 || right < 95 {
		t.Errorf("%d of %d right", right, trials)
	}
}

// thin plays n calls of the trial's middle sizes as a program does that makes few puts of 4 KiB: one in `of` of them, the calls
// over again where they are not enough.
func thin(w *ginWatch, calls []ginCall, of, n int) (v Verdict) {
	small := 0
	for n > 0 {
		for _, c := range calls {
			if c.bytes == 4<<10 {
				small++
			}
			if n == 0 || c.bytes != 4<<10 && c.bytes != 32<<10 || c.bytes == 4<<10 && small%of != 0 {
				continue
			}
			n--
			_, v = w.call(c)
		}
	}
	return v
}

// Live, one put in 256 is timed, so that a size that is rare never has as many calls as one would like to have. What there is after
// some hundred of all sizes has to be enough. Then a link becomes ten times slower, which programs leave within a few calls, and
// when they come back all is as it was: that is a recovery from both. (As in nccltuner/gputest/gin_live.sh on 2x H200.)
func TestDiagnosesRareSizesAndTwoFaultsInARow(t *testing.T) {
	for _, of := range []int{1, 4, 8} {
		trials, right, recovered := 0, 0, 0
		for _, trial := range readGinSeries(t) {
			if trial.fault != "backend-fallback" {
				continue
			}
			trials++
			w := newGinWatch(mustDesign(t))
			thin(w, trial.phases[0], of, 160)
			if v := thin(w, trial.phases[1], of, 135); v.Diagnosis == DiagnosisBackendFallback {
				right++
			}
			capped := make([]ginCall, len(trial.phases[0]))
			for i, c := range trial.phases[0] {
				const nsPerByte = 5 // 0.2 GB/s
				capped[i] = ginCall{c.bytes, c.counter + state.Ns(nsPerByte*c.bytes), c.signalNs + 2*state.Ns(nsPerByte*c.bytes)}
			}
			thin(w, capped, of, 18)
			if v := thin(w, trial.phases[0], of, 135); v.Diagnosis == DiagnosisRecovered {
				recovered++
			}
		}
		t.Logf("one in %d calls of 4 KiB: %d trials, %d right, %d recovered", of, trials, right, recovered)
		if trials != 100 || right < 95 || recovered < 95 {
			t.Errorf("one in %d calls of 4 KiB: %d of %d right, %d recovered", of, right, trials, recovered)
		}
	}
}

// What comes on top of a fault for a few calls, some of them a hundred times as long, leaves detectors that hear of no way down: the
// latest calls say all the same that all is as it was.
func TestEndOfAFaultWithoutAnAlarm(t *testing.T) {
	trials, recovered := 0, 0
	for _, trial := range readGinSeries(t) {
		if trial.fault != "backend-fallback" {
			continue
		}
		for _, wild := range []int{6, 10} {
			trials++
			w := newGinWatch(mustDesign(t))
			thin(w, trial.phases[0], 1, 160)
			thin(w, trial.phases[1], 1, 135)
			on := make([]ginCall, len(trial.phases[0]))
			for i, c := range trial.phases[0] {
				nsPerByte := state.Ns(5)
				if i%3 == 0 {
					nsPerByte = 100
				}
				on[i] = ginCall{c.bytes, c.counter + nsPerByte*state.Ns(c.bytes), c.signalNs + 2*nsPerByte*state.Ns(c.bytes)}
			}
			thin(w, on, 1, wild)
			if v := thin(w, trial.phases[0], 1, 200); v.Diagnosis == DiagnosisRecovered {
				recovered++
			}
		}
	}
	t.Logf("%d of %d recovered", recovered, trials)
	if trials != 200 || recovered < 195 {
		t.Errorf("%d of %d recovered", recovered, trials)
	}
}
