package agents

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"gonum.org/v1/gonum/stat/distuv"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// script is one detector driven by lines of testdata/detector:
//
//	new [run-length=100000 shift=1.08 noise=0.05]
//	observe [action=Ring/LL/8] signal=60us [counter=50us] [noise=5%] [at=-3s] [bytes=65536] x20
//
// Noise follows a fixed sequence (golden ratio steps through the normal distribution), so scripts are exact.
type script struct {
	det   *Detector
	calls int
}

func (s *script) step(t *testing.T, line string) string {
	fields := strings.Fields(line)
	p := DefaultParams()
	o := state.Observation{Bytes: 65536}
	var out strings.Builder
	count, noise := 1, 0.0
	for _, f := range fields[1:] {
		key, value, pair := strings.Cut(f, "=")
		var err error
		switch {
		case !pair && strings.HasPrefix(f, "x"):
			count, err = strconv.Atoi(f[1:])
		case key == "action":
			o.Action, err = actions.Parse(value)
		case key == "signal":
			o.SignalNs, err = parseNs(value)
		case key == "counter":
			o.CounterNs, err = parseNs(value)
		case key == "at":
			o.AtNs, err = parseNs(value)
		case key == "bytes":
			o.Bytes, err = strconv.ParseUint(value, 10, 64)
		case key == "noise" && fields[0] == "observe":
			noise, err = strconv.ParseFloat(strings.TrimSuffix(value, "%"), 64)
		case key == "noise":
			p.NoiseRatio, err = strconv.ParseFloat(value, 64)
		case key == "shift":
			p.ShiftRatio, err = strconv.ParseFloat(value, 64)
		case key == "run-length":
			p.RunLengthCalls, err = strconv.ParseFloat(value, 64)
		default:
			t.Fatalf("%q: unknown word %q", line, f)
		}
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
	}
	switch fields[0] {
	case "new":
		d, err := NewDesign(p)
		if err != nil {
			return fmt.Sprintf("error: %v\n", err)
		}
		s.det, s.calls = NewDetector(d), 0
		return fmt.Sprintf("k=%.3f signal h=%.2f counter h=%.2f\n", d.k, d.signalH, d.counterH)
	case "observe":
		for i := range count {
			s.calls++
			call := o
			_, u := math.Modf(float64(s.calls) * 0.6180339887498949)
			factor := math.Exp(noise / 100 * distuv.UnitNormal.Quantile(0.001+0.998*u))
			if noise > 0 {
				call.SignalNs = state.Ns(float64(o.SignalNs) * factor)
				call.CounterNs = state.Ns(float64(o.CounterNs) * factor)
			}
			if a := s.det.Observe(call); a.Raised {
				fmt.Fprintf(&out, "alarm at call %d of these: up=%v signal=%v counter=%v since=%d calls, signal %.1f -> %.1f us (%.2fx), counter %.1f -> %.1f us\n",
					i+1, a.Up, a.BySignal, a.ByCounter, a.Calls, a.Signal.BeforeNs/1e3, a.Signal.AfterNs/1e3, a.Signal.Ratio(), a.Counter.BeforeNs/1e3, a.Counter.AfterNs/1e3)
			}
		}
		stat := s.det.Stat()
		fmt.Fprintf(&out, "signal %.2f counter %.2f ignored %d\n", stat.Signal, stat.Counter, s.det.Ignored())
		return out.String()
	}
	t.Fatalf("%q: want new or observe", line)
	return ""
}

// parseNs reads a duration, or a bare number of ns for values that no duration literal has.
func parseNs(s string) (state.Ns, error) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return state.Ns(n), nil
	}
	d, err := time.ParseDuration(s)
	return state.Ns(d.Nanoseconds()), err
}

func TestDetectorScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/detector", func(t *testing.T, path string) {
		var s script
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out := ""
			for _, line := range strings.Split(d.Input, "\n") {
				out += s.step(t, line)
			}
			return out
		})
	})
}

// TestActionsAreNotTheFabric: a learner that jumps between actions of very different cost causes no alarm, and the
// expectations that it leaves behind are bounded.
func TestActionsAreNotTheFabric(t *testing.T) {
	det := NewDetector(mustDesign(t))
	rng := rand.New(rand.NewPCG(detectorSeed(t), 5))
	for i := range 20_000 {
		n := rng.IntN(100)
		cost := 20e3 * (1 + float64(n)) * math.Exp(0.05*rng.NormFloat64())
		o := state.Observation{Action: actions.Action{Path: actions.PathCollective, Channels: uint8(n + 1)}, SignalNs: state.Ns(cost), CounterNs: state.Ns(cost / 2)}
		if a := det.Observe(o); a.Raised {
			t.Fatalf("call %d: alarm %+v", i, a)
		}
	}
	if len(det.actions) > maxExpectations {
		t.Errorf("%d expectations kept, want at most %d", len(det.actions), maxExpectations)
	}
}

// TestSpikes: a call of five, or of a thousand, times the cost does not alarm, nor do two in a row; a sustained step of
// that size alarms within four calls.
func TestSpikes(t *testing.T) {
	for _, height := range []float64{5, 1000} {
		for _, row := range []int{1, 2, 4} {
			det := NewDetector(mustDesign(t))
			f := fabric{rng: rand.New(rand.NewPCG(6, 6)), sigma: 0.05, rho: 0.5}
			for range 100 {
				if det.Observe(f.call()).Raised {
					t.Fatal("alarm on a quiet fabric")
				}
			}
			f.signal, f.counter = math.Log(height), math.Log(height)
			raised := false
			for range row {
				raised = det.Observe(f.call()).Raised || raised
			}
			if raised != (row == 4) {
				t.Errorf("%d calls of %gx in a row: alarm %v", row, height, raised)
			}
		}
	}
}

func TestObserveAllocatesNothing(t *testing.T) {
	det, diag := NewDetector(mustDesign(t)), NewDiagnoser()
	f := fabric{rng: rand.New(rand.NewPCG(1, 1)), sigma: 0.05}
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}
	call := func(i int) {
		o := f.call()
		o.Action.Channels = uint8(i % 3)
		if i%1000 == 999 {
			f.signal = 0.5 - f.signal // alarms are part of it
		}
		diag.Observe(b, det, o, det.Observe(o))
	}
	for i := range 5000 {
		call(i)
	}
	i := 0
	if n := testing.AllocsPerRun(20_000, func() { i++; call(i) }); n != 0 {
		t.Errorf("%v allocations a call, want none", n)
	}
}

func BenchmarkDetectorObserve(b *testing.B) {
	det := NewDetector(mustDesign(b))
	f := fabric{rng: rand.New(rand.NewPCG(1, 1)), sigma: 0.05}
	var calls [1024]state.Observation
	for i := range calls {
		calls[i] = f.call()
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		det.Observe(calls[i%len(calls)])
		i++
	}
}

func BenchmarkDiagnoserObserve(b *testing.B) {
	det, diag := NewDetector(mustDesign(b)), NewDiagnoser()
	f := fabric{rng: rand.New(rand.NewPCG(1, 1)), sigma: 0.05}
	var calls [1024]state.Observation
	for i := range calls {
		calls[i] = f.call()
	}
	bucket := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		o := calls[i%len(calls)]
		diag.Observe(bucket, det, o, det.Observe(o))
		i++
	}
}
