package tuner

import (
	"math"
	"slices"
	"testing"

	"dynamiccl/agents"
)

// putKind is what is expected to take as long.
type putKind struct {
	bytes          uint64
	ctas, contexts uint8
}

// What can be had of these runs: log odds of what a kind's puts take in quiet against what they take with 1.3 us more, as normal laws
// whose medians and spread are known beforehand, a put's bounded by what spikes allow, and summed up to one alarm in 100,000 and beyond
// what the run's quiet puts reach. What has to learn all that can hardly be quicker.
func TestBestThatPutsCanTell(t *testing.T) {
	for _, run := range ginRuns {
		delays, limit := run.best(t)
		want := 0 // eight ways in each
		for _, p := range run.parts {
			want += 8 * b2i(p.fault == agents.DiagnosisBackendFallback)
		}
		slices.Sort(delays)
		within := 0
		for _, n := range delays {
			within += b2i(n <= 32)
		}
		t.Logf("%s: %d of %d within 32 puts that show 1.3 us more, %d in the median, %d at most, at %.1f", run.file, within, len(delays),
			delays[len(delays)/2], delays[len(delays)-1], limit)
		if len(delays) != want || 100*within < 95*want {
			t.Errorf("%d of %d", within, len(delays))
		}
	}
}

func (run *ginRun) best(t *testing.T) (delays []int, limit float64) {
	const atMost = 1.5 // of 1 to 4 the best: more makes spikes of two or three puts count as much as a fault
	part := func(number uint32) int {
		i := 0
		for i+1 < len(run.parts) && number >= run.parts[i+1].from {
			i++
		}
		return i
	}
	all := slices.DeleteFunc(run.play(t, 0), func(p ginTold) bool { return p.signalNs == 0 })
	quiet, under := map[putKind][]float64{}, map[putKind][]float64{}
	for _, p := range all {
		at := &run.parts[part(p.number)]
		switch {
		case at == &run.parts[0]:
			quiet[p.kind] = append(quiet[p.kind], math.Log(float64(p.signalNs)))
		case at.fault == agents.DiagnosisBackendFallback && p.number >= at.shown:
			under[p.kind] = append(under[p.kind], math.Log(float64(p.signalNs)))
		}
	}
	odds := map[putKind]func(logNs float64) float64{}
	for kind, v := range quiet {
		if len(v) < 16 || len(under[kind]) < 16 {
			continue
		}
		before, sigma := middleAndSpread(v)
		after, _ := middleAndSpread(under[kind])
		rise := (after - before) / sigma
		odds[kind] = func(x float64) float64 { return max(-atMost, min(atMost, rise*((x-before)/sigma-rise/2))) }
	}
	limit = math.Log(100_000)
	sums, puts, found, was := map[linkKey]float64{}, map[linkKey]int{}, map[linkKey]int{}, 0
	for _, p := range all {
		now := part(p.number)
		if now != was {
			for way, n := range puts {
				if found[way] > 0 {
					n = found[way]
				}
				delays = append(delays, n)
			}
			clear(sums)
			clear(puts)
			clear(found)
			was = now
		}
		at := &run.parts[now]
		under := at.fault == agents.DiagnosisBackendFallback && p.number >= at.shown
		if !under && now > 0 {
			continue
		}
		if under {
			puts[p.way]++
		}
		if of := odds[p.kind]; of != nil {
			sums[p.way] = max(0, sums[p.way]+of(math.Log(float64(p.signalNs))))
		}
		switch {
		case !under:
			limit = max(limit, sums[p.way])
		case sums[p.way] > limit && found[p.way] == 0:
			found[p.way] = puts[p.way]
		}
	}
	return delays, limit
}

// middleAndSpread are robust: median, and median absolute deviation as a normal law's standard deviation.
func middleAndSpread(v []float64) (middle, spread float64) {
	v = slices.Clone(v)
	slices.Sort(v)
	middle = v[len(v)/2]
	for i := range v {
		v[i] = math.Abs(v[i] - middle)
	}
	slices.Sort(v)
	return middle, 1.4826 * v[len(v)/2]
}
