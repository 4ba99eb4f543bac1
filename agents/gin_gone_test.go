package agents

import "testing"

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
