package agents

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"
	"pgregory.net/rapid"
)

// TestEstimatedParameters holds what learning mean and scale from few calls costs: false alarms soon after the start and
// delay of early steps, with noise at the assumed 5% and at twice that.
func TestEstimatedParameters(t *testing.T) {
	d, seed := mustDesign(t), detectorSeed(t)
	for _, sigma := range []float64{0.05, 0.10} {
		const runs = 1000
		f := fabric{rng: rand.New(rand.NewPCG(seed, 3)), sigma: sigma}
		early, later := 0, 0
		for range runs {
			det := NewDetector(d)
			for i := range 1000 {
				if det.Observe(f.call()).Raised {
					later++
					if i < 100 {
						early++
					}
					break
				}
			}
		}
		line := fmt.Sprintf("noise %2.0f%%: false alarm within 100 calls %.2f%%, within 1000 calls %.2f%%;", sigma*100,
			100*float64(early)/runs, 100*float64(later)/runs)
		step := math.Log(1.08) * sigma / 0.05
		for _, before := range []int{24, 32, 48, 100, 300} {
			y := stepDelay(d, seed, 400, before, 1, f, step, step)
			line += fmt.Sprintf(" step after %d: %.1f (%.1f%% missed);", before, y.Mean, 100*y.Missed)
			if before >= 48 && y.Mean > 14 {
				t.Errorf("noise %v, step after %d calls: mean delay %.1f", sigma, before, y.Mean)
			}
		}
		t.Log(line)
		// With known parameters a false alarm falls within 1000 calls in 1% of runs.
		if float64(later)/runs > 0.03 {
			t.Errorf("noise %v: %d of %d runs had a false alarm within 1000 calls, want at most 3%%", sigma, later, runs)
		}
	}
}

// TestHeavyTails: spikes and heavy tails shorten the run length; how far is held here.
func TestHeavyTails(t *testing.T) {
	d, seed := mustDesign(t), detectorSeed(t)
	calls := 1_500_000
	for _, c := range []struct {
		name string
		f    fabric
		want float64 // calls
	}{
		{"1% of calls 5x", fabric{sigma: 0.05, spikes: 0.01, rho: 1}, 20_000},
		{"2% of calls 5x", fabric{sigma: 0.05, spikes: 0.02, rho: 1}, 5_000},
		{"Student's t, 4 degrees of freedom", fabric{sigma: 0.05, studentT: 4}, 20_000},
	} {
		c.f.rng = rand.New(rand.NewPCG(seed, 4))
		mean, stderr, n := runLength(d, &c.f, calls)
		t.Logf("%s: run length %.0f +- %.0f (%d alarms)", c.name, mean, stderr, n)
		if mean < c.want {
			t.Errorf("%s: run length %.0f calls, want at least %.0f", c.name, mean, c.want)
		}
	}
}

func TestChain(t *testing.T) {
	// Closed form when h is so small that every step from any state either alarms or returns to zero: one state, run
	// length 1/P(residual >= h+k).
	if got, want := newChain(1e-9, 1, 0, winsorAt, 40).fromZero(), 1/(1-normalCDF(1)); math.Abs(got/want-1) > 1e-6 {
		t.Errorf("chain at h=0: %v, want %v", got, want)
	}
	// Published: k=0.5, h=4 and 5, two-sided ARL0 168 and 465, ARL1 8.38 and 10.4 at 1 sigma (Montgomery, Introduction
	// to Statistical Quality Control, table 9.3).
	for _, c := range []struct{ h, inControl, oneSigma float64 }{{4, 168, 8.38}, {5, 465, 10.4}} {
		in := newChain(c.h, 0.5, 0, 40, 200).fromZero() / 2
		out := newChain(c.h, 0.5, 1, 40, 200).fromZero()
		if math.Abs(in/c.inControl-1) > 0.01 || math.Abs(out/c.oneSigma-1) > 0.01 {
			t.Errorf("h=%v: run lengths %.1f and %.2f, published %v and %v", c.h, in, out, c.inControl, c.oneSigma)
		}
		if s := siegmund(c.h, 0.5, 0) / 2; math.Abs(s/c.inControl-1) > 0.05 {
			t.Errorf("h=%v: Siegmund %.1f, published %v", c.h, s, c.inControl)
		}
	}
	d := mustDesign(t)
	shipped, fine := newChain(d.signalH, d.k, 0, winsorAt, chainStates).fromZero(), newChain(d.signalH, d.k, 0, winsorAt, 400).fromZero()
	if math.Abs(shipped/fine-1) > 0.02 {
		t.Errorf("chain of %d states: %.0f calls, of 400 states %.0f: more than 2%% apart", chainStates, shipped, fine)
	}
}

// What is written down of the default parameters is what would be computed: on other machines, which round otherwise, to what bisection leaves.
func TestDefaultDesign(t *testing.T) {
	written := mustDesign(t)
	computed, err := designFor(DefaultParams())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]float64{{written.k, computed.k}, {written.signalH, computed.signalH}, {written.counterH, computed.counterH}, {written.minLogScale, computed.minLogScale}} {
		if math.Abs(c[0]/c[1]-1) > 1e-5 {
			t.Errorf("written %+v, computed %+v", written, computed)
		}
	}
}

func TestDesignRejects(t *testing.T) {
	for _, p := range []Params{
		{}, {math.NaN(), 1.08, 0.05}, {100_000, math.NaN(), 0.05}, {100_000, 1.08, math.NaN()}, {math.Inf(1), 1.08, 0.05},
		{100_000, 1, 0.05}, {100_000, 0.9, 0.05}, {100_000, 2, 0.05}, {100_000, 1.08, 0}, {100_000, 1.08, -1}, {1, 1.08, 0.05},
	} {
		if _, err := NewDesign(p); !errors.Is(err, ErrBadParams) {
			t.Errorf("%+v: error %v, want ErrBadParams", p, err)
		}
	}
	longer, err := NewDesign(Params{1e6, 1.08, 0.05})
	if err != nil || longer.signalH <= mustDesign(t).signalH {
		t.Errorf("ten times the run length: threshold %v, %v; want a larger one", longer.signalH, err)
	}
}

func TestNormalFromT(t *testing.T) {
	for _, nu := range []float64{15, 30, 200, 2047} {
		for x := -4.0; x <= 4; x += 0.25 {
			exact := distuv.UnitNormal.Quantile(distuv.StudentsT{Sigma: 1, Nu: nu}.CDF(x))
			if got := normalFromT(x, nu); math.Abs(got-exact) > 0.01 {
				t.Errorf("t=%v, nu=%v: %v, exact %v", x, nu, got, exact)
			}
		}
	}
}

// TestChartOracle: the shipped chart equals a naive CUSUM that keeps every call and recomputes mean and variance from
// the list of calls taken in.
func TestChartOracle(t *testing.T) {
	d := mustDesign(t)
	rapid.Check(t, func(r *rapid.T) {
		sigma := rapid.Float64Range(0.01, 0.5).Draw(r, "sigma")
		xs := rapid.SliceOfN(rapid.Float64Range(-4, 4), warmUpCalls, 300).Draw(r, "z")
		var e expectation
		var c chart
		var taken, held, qs []float64
		var up, down float64
		for i, z := range xs {
			x := 10 + sigma*z
			if !e.ready() {
				e.warmUp(x)
				continue
			}
			if taken == nil { // the oracle starts from the same 16 calls, spikes pulled in
				taken = append(taken, naiveWarm(xs[:warmUpCalls], sigma)...)
			}
			mean, variance := meanVariance(taken)
			n := float64(len(taken))
			reach := math.Max(math.Sqrt(variance), d.minLogScale) * math.Sqrt(1+1/n)
			q := clamp(normalFromT((x-mean)/reach, n-1), winsorAt)
			qs = append(qs, q)
			wider := naiveInflation(qs)
			up, down = math.Max(0, up+q-d.k-wider*widening/n), math.Max(0, down-q-d.k-wider*widening/n)
			held = append(held, mean+clamp(x-mean, winsorAt*reach))
			if up == 0 && down == 0 {
				taken, held = append(taken, held...), nil
			}
			alarm := c.step(&e, x, d.k, d.signalH, d.minLogScale)
			if math.Abs(c.up.sum-up) > 1e-6 || math.Abs(c.down.sum-down) > 1e-6 || alarm != (max(up, down) >= wider*d.signalH) {
				r.Fatalf("call %d: sums %v and %v, alarm %v; oracle %v and %v", i, c.up.sum, c.down.sum, alarm, up, down)
			}
			if alarm {
				return
			}
		}
	})
}

// naiveInflation recomputes what sumNoise knows from all residuals so far.
func naiveInflation(qs []float64) float64 {
	most := 1.0
	for length := 1; length <= 64; length *= 2 {
		excess, weight := 0.0, float64(noisePrior)
		for pair := 0; (pair+2)*length <= len(qs); pair += 2 {
			d := 0.0
			for i := range length {
				d += qs[(pair+1)*length+i] - qs[pair*length+i]
			}
			n := weight - noisePrior
			limit := winsorAt * math.Sqrt(1+excess*n/weight)
			d = clamp(d/math.Sqrt(float64(2*length)), limit)
			n = math.Min(n+1, noiseMemory)
			excess, weight = excess+(d*d-1-excess)/n, n+noisePrior
		}
		if e := excess * (weight - noisePrior) / weight; e > noiseDoubt*math.Sqrt(2/weight) {
			most = math.Max(most, 1+e)
		}
	}
	return most
}

func naiveWarm(zs []float64, sigma float64) []float64 {
	xs, dev := make([]float64, len(zs)), make([]float64, len(zs))
	for i, z := range zs {
		xs[i] = 10 + sigma*z
	}
	mid := medianOf(append([]float64(nil), xs...))
	for i, x := range xs {
		dev[i] = math.Abs(x - mid)
	}
	reach := 4 * sigmaPerMAD * medianOf(dev)
	for i, x := range xs {
		xs[i] = mid + clamp(x-mid, reach)
	}
	return xs
}

func meanVariance(xs []float64) (mean, variance float64) {
	for _, x := range xs {
		mean += x / float64(len(xs))
	}
	for _, x := range xs {
		variance += sq(x-mean) / float64(len(xs)-1)
	}
	return mean, variance
}
