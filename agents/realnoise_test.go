package agents

import (
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// realSeries is one line of testdata/realnoise: costs or batch medians of one point, in the order of measurement.
type realSeries struct {
	key    string // collective,bytes
	action string // of a stream; load of a batch line
	values []float64
}

// readRealNoise reads streams.csv or batches.csv (testdata/realnoise/PROVENANCE.md).
func readRealNoise(t testing.TB, name string) (all []realSeries) {
	t.Helper()
	text, err := os.ReadFile("testdata/realnoise/" + name)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for _, line := range lines[1:] {
		f := strings.Split(line, ",")
		s := realSeries{key: f[0] + "," + f[1], action: f[2]}
		if name == "batches.csv" {
			s.key, s.action = f[2]+","+f[3], f[0]
		}
		for _, v := range strings.Fields(f[4]) {
			x, err := strconv.ParseFloat(v, 64)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			s.values = append(s.values, x)
		}
		all = append(all, s)
	}
	return all
}

// realPoint is one point's calls as a job makes them: bursts of 40 calls, each at the level that the machine had when the
// bench measured a batch there, with the noise of real calls that ran back to back.
type realPoint struct {
	key    string
	phases [][]float64 // quiet, network load, quiet; ns
}

const burst = 40

func realPoints(t testing.TB) (points []realPoint) {
	t.Helper()
	noise := map[string][]float64{} // log cost of bursts of real calls, each against its own median
	for _, s := range readRealNoise(t, "streams.csv") {
		if s.action != "default" {
			continue
		}
		for b := range slices.Chunk(s.values, burst) {
			if len(b) < burst {
				continue
			}
			mid := medianOf(slices.Clone(b))
			for _, v := range b {
				noise[s.key] = append(noise[s.key], math.Log(v/mid))
			}
		}
	}
	at := map[string]int{}
	for _, s := range readRealNoise(t, "batches.csv") {
		i, ok := at[s.key]
		if !ok {
			i = len(points)
			at[s.key] = i
			points = append(points, realPoint{key: s.key})
		}
		n, calls := noise[s.key], []float64(nil)
		for j, us := range s.values {
			for k := range burst {
				calls = append(calls, us*1e3*math.Exp(n[(j*burst+k)%len(n)]))
			}
		}
		points[i].phases = append(points[i].phases, calls)
	}
	return points
}

func realCall(ns float64) state.Observation {
	return state.Observation{Action: actions.Default, Bytes: 65536, SignalNs: state.Ns(ns), CounterNs: state.Ns(ns)}
}

// play lets the detectors of all points see their bursts in turn, as in a job, and gives alarms by phase, those of each
// point's first calls, and the calls until the first alarm after a change of load.
func play(points []realPoint, detectors []*Detector, first int) (alarms, calls [3]int, early int, delays []int) {
	for phase := range alarms {
		found := make([]bool, len(points))
		for at := 0; at < len(points[0].phases[phase]); at += burst {
			for j, p := range points {
				for i, ns := range p.phases[phase][at : at+burst] {
					calls[phase]++
					if !detectors[j].Observe(realCall(ns)).Raised {
						continue
					}
					switch {
					case phase > 0 && !found[j]:
						found[j] = true
						delays = append(delays, at+i+1)
					case phase == 0 && at+i < first:
						early++
						fallthrough
					default:
						alarms[phase]++
					}
				}
			}
		}
	}
	slices.Sort(delays)
	return alarms, calls, early, delays
}

// TestRealBursts: real calls that come in bursts of 40, each burst at a level of its own, make few alarms once the
// communicator has learned that they do; a change of load is found all the same.
func TestRealBursts(t *testing.T) {
	points, noise := realPoints(t), FabricNoise{}
	var detectors []*Detector
	for range points {
		d := NewDetector(mustDesign(t))
		d.Share(&noise)
		detectors = append(detectors, d)
	}
	const first = 1000
	alarms, calls, early, delays := play(points, detectors, first)
	per1000 := func(n, of int) float64 { return 1000 * float64(n) / float64(of) }
	all := per1000(alarms[0]+alarms[1]+alarms[2], calls[0]+calls[1]+calls[2])
	learned := per1000(alarms[0]+alarms[1]+alarms[2]-early, calls[0]+calls[1]+calls[2]-first*len(points))
	t.Logf("false alarms per 1000 calls: %.2f, first %d calls of each point %.2f, then %.2f; calls until a change of load is found: %v",
		all, first, per1000(early, first*len(points)), learned, delays)
	if all > 0.7 || learned > 0.3 {
		t.Errorf("%.2f false alarms per 1000 calls, %.2f after the first %d; want at most 0.7 and 0.3", all, learned, first)
	}
	if n := len(delays); n != 2*len(points) || delays[n/2] > 100 || delays[n-1] > 200 {
		t.Errorf("%d of %d changes of load found, after %v calls; want all within 200, half within 100", n, 2*len(points), delays)
	}
}

// TestRealStreams: back-to-back calls of one choice, all points of a sweep one after the other, then half as much again.
func TestRealStreams(t *testing.T) {
	noise, detectors := FabricNoise{}, map[string]*Detector{}
	streams := readRealNoise(t, "streams.csv")
	calls, alarms := 0, 0
	for _, s := range streams {
		k := s.key + s.action
		if detectors[k] == nil {
			detectors[k] = NewDetector(mustDesign(t))
			detectors[k].Share(&noise)
		}
		for _, ns := range s.values {
			calls++
			if detectors[k].Observe(realCall(ns)).Raised {
				alarms++
			}
		}
	}
	var delays []int
	for _, s := range streams {
		if d := detectors[s.key+s.action]; d != nil {
			delete(detectors, s.key+s.action)
			i := 0
			for i < len(s.values) && !d.Observe(realCall(1.5*s.values[i])).Raised {
				i++
			}
			delays = append(delays, i+1)
		}
	}
	slices.Sort(delays)
	rate := 1000 * float64(alarms) / float64(calls)
	t.Logf("%.2f false alarms per 1000 calls; calls until a step of 1.5 is found: %v", rate, delays)
	if rate > 1.2 {
		t.Errorf("%d false alarms in %d calls, %.2f per 1000; want at most 1.2", alarms, calls, rate)
	}
	if n := len(delays); delays[n/2] > 20 || delays[n*9/10] > 40 {
		t.Errorf("steps of 1.5 found after %v calls; want half within 20, nine of ten within 40", delays)
	}
}
