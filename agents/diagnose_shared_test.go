package agents

import "testing"

// A program leaves a slow link within four puts of five ways, which are too few for an alarm, and goes on by the sixth. What that one tells
// is what the four show, made before it is told or each way's long after, and is over with few puts, too.
func TestFewPutsBeginByWhatAWayBesideTells(t *testing.T) {
	told, over, design := [2]int{}, 0, mustDesign(t)
	slow := func(bytes uint64) float64 { return float64(bytes) * 5 }
	for trial := range uint64(20) {
		for beside := range 2 {
			w := newWaysBeside(design, trial, beside == 1)
			w.puts(200, func(int, uint64) float64 { return 0 })
			if trial%2 == 0 {
				w.puts(4, func(_ int, bytes uint64) float64 { return slow(bytes) })
			}
			for i := range 40 {
				bytes := []uint64{2048, 8192, 16384, 32768}[i%4]
				w.put(0, bytes, slow(bytes))
			}
			if trial%2 == 1 {
				for i := range 4 * (len(w.ways) - 1) {
					if i%4 == 0 {
						w.at += 3 * besideNs
					}
					bytes := []uint64{2048, 8192, 16384, 32768}[i%4]
					w.put(1+i/4, bytes, slow(bytes))
				}
			}
			for _, d := range w.said[1:] {
				told[beside] += b2i(d == DiagnosisCongestion)
			}
			if w.puts(16, func(int, uint64) float64 { return 0 }); beside == 0 {
				continue
			}
			for _, d := range w.said[1:] {
				over += b2i(d == DiagnosisRecovered)
			}
		}
	}
	t.Logf("of 100 ways %d say congestion by themselves, %d with one beside that does, and %d its end", told[0], told[1], over)
	if told[0] > 5 || told[1] < 95 || over < 95 {
		t.Error("want 95 of 100 with what is told beside them, and next to none without")
	}
}

// A card that is slow for one context alone makes none of the others slow, though of their puts one in eight takes ten times as long.
func TestFaultOfOneContextIsNotShared(t *testing.T) {
	alarms, told, design := [2]int{}, 0, mustDesign(t)
	for trial := range uint64(20) {
		for beside := range 2 {
			w := newWaysBeside(design, trial, beside == 1)
			spike := func(bytes uint64) float64 {
				if w.rng.IntN(8) == 0 {
					return 100e3 * float64(bytes) / 2048
				}
				return 0
			}
			w.puts(200, func(_ int, bytes uint64) float64 { return spike(bytes) })
			w.begun = [6]int{}
			w.puts(400, func(way int, bytes uint64) float64 {
				if way == 0 {
					return float64(bytes)*5 + spike(bytes)
				}
				return spike(bytes)
			})
			for _, n := range w.begun[1:] {
				alarms[beside] += n
			}
			if beside == 1 {
				told += b2i(w.said[0] == DiagnosisCongestion)
			}
		}
	}
	t.Logf("%d of 20 say congestion where it is; in 40,000 puts of others %d alarms, %d without it beside them", told, alarms[1], alarms[0])
	if told < 19 || alarms[1] > alarms[0]+1 {
		t.Error("want 95 of 100, and no more alarms of others than there are without")
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
