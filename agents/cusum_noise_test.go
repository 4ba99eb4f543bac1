package agents

import (
	"math"
	"math/rand/v2"
	"testing"
)

// bursts are residuals of standard deviation 1 of which all but `own` is the same for length calls.
func bursts(rng *rand.Rand, n, length int, own float64) []float64 {
	zs, level := make([]float64, n), 0.0
	for i := range zs {
		if i%length == 0 {
			level = rng.NormFloat64()
		}
		zs[i] = math.Sqrt(own)*rng.NormFloat64() + math.Sqrt(1-own)*level
	}
	return zs
}

// The variance of long sums over that of independent ones is known: 1 for independent residuals, nearly length*(1-own) for
// bursts. What was learned of noise that has gone is forgotten.
func TestSumNoise(t *testing.T) {
	rng := rand.New(rand.NewPCG(detectorSeed(t), 7))
	var s sumNoise
	feed := func(zs []float64) {
		for _, z := range zs {
			s.add(z)
		}
	}
	above := 0.0
	for range 20_000 {
		s.add(rng.NormFloat64())
		above += s.inflation() - 1
	}
	if above /= 20_000; above > 0.05 {
		t.Errorf("independent residuals: inflated by %.3f in the mean, want at most 0.05", above)
	}
	feed(bursts(rng, 20_000, 40, 0.5))
	if r := s.inflation(); r < 10 || r > 30 {
		t.Errorf("bursts of 40 calls: inflation %.1f, want about 20", r)
	}
	before := s.inflation()
	feed(bursts(rng, 30_000, 1, 1))
	if r := s.inflation(); r > 2 {
		t.Errorf("independent again for 30,000 calls: inflation %.1f, was %.1f; want it forgotten", r, before)
	}
}

// One bucket's bursts keep the others from alarming at theirs.
func TestBucketsShareNoise(t *testing.T) {
	rng := rand.New(rand.NewPCG(detectorSeed(t), 8))
	alarms := func(fabric *FabricNoise) (n int) {
		det := NewDetector(mustDesign(t))
		det.Share(fabric)
		for _, z := range bursts(rng, 400, 40, 0.5) {
			if det.Observe(realCall(60e3 * math.Exp(0.1*z))).Raised {
				n++
			}
		}
		return n
	}
	var fabric FabricNoise
	alone, taught := 0, 0
	for range 20 {
		alone += alarms(&FabricNoise{})
		alarms(&fabric)
	}
	for range 20 {
		taught += alarms(&fabric)
	}
	if t.Logf("%d alarms alone, %d with what others saw", alone, taught); 4*taught > alone {
		t.Errorf("20 buckets of 400 calls: %d alarms alone, %d with what others saw; want a quarter at most", alone, taught)
	}
}
