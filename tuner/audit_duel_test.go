package tuner

import (
	"math"
	"math/rand/v2"
	"testing"
)

// program makes blocks of steps, the chosen ones longer by a factor.
type program struct {
	rng    *rand.Rand
	sigma  float64
	longer float64 // logarithm
	stray  bool    // one step in 30 takes 2 to 10 times as long
	lasts  bool    // noise stays for some steps
	drift  float64 // each block's steps are longer than those of the one before, by so much noise
	blocks float64
	state  float64
}

func (p *program) block(byDefault bool) float64 {
	v := make([]float64, auditSteps)
	p.blocks++
	for i := range v {
		noise := p.rng.NormFloat64()
		if p.lasts {
			p.state = 0.9*p.state + math.Sqrt(1-0.81)*noise
			noise = p.state
		}
		v[i] = p.sigma * (noise + p.drift*p.blocks)
		if p.stray && p.rng.IntN(30) == 0 {
			v[i] += math.Log(2 + 8*p.rng.Float64())
		}
		if !byDefault {
			v[i] += p.longer
		}
	}
	return middle(v)
}

func (p *program) duel(plain bool, seed uint64) (*duel, outcome) {
	d := newDuel(plain, seed, 1)
	for {
		if o := d.block(p.block(d.byDefault())); o != undecided {
			return d, o
		}
	}
}

// Where both ways are equal a duel says so or nothing, whatever the noise: it says that steps are longer at most once in a thousand.
func TestEqualStepsAreNoneTheLonger(t *testing.T) {
	const duels = 4000
	for _, sigma := range []float64{0.002, 0.01, 0.05, 0.1} {
		for _, kind := range []struct {
			stray, lasts bool
			drift        float64
		}{{}, {stray: true}, {lasts: true}, {stray: true, lasts: true}, {drift: 3}, {drift: -3}} {
			p := &program{rng: rand.New(rand.NewPCG(1, math.Float64bits(sigma))), sigma: sigma, stray: kind.stray, lasts: kind.lasts, drift: kind.drift}
			var n [4]int
			pairs := 0
			for seed := range uint64(duels) {
				d, o := p.duel(seed&1 == 0, seed)
				n[o]++
				pairs += len(d.differ)
			}
			t.Logf("noise %g, %+v: longer %d, as good %d, unshown %d of %d; %.1f pairs", sigma, kind, n[worse], n[asGood], n[unshown], duels, float64(pairs)/duels)
			if n[worse] > duels/1000 {
				t.Errorf("noise %g, %+v: %d of %d duels of equals say that one is longer", sigma, kind, n[worse], duels)
			}
		}
	}
}

// What makes steps longer is found where noise allows it, and what makes them shorter stays.
func TestLongerStepsAreFound(t *testing.T) {
	const duels = 1000
	for _, c := range []struct {
		sigma, longer float64
		worse, asGood float64 // shares, at least
	}{
		{0.002, 0.007, 0.999, 0}, {0.002, 0.018, 0.999, 0}, {0.01, 0.018, 0.97, 0}, {0.01, 0.04, 0.999, 0}, {0.05, 0.1, 0.98, 0}, {0.1, 0.3, 0.999, 0},
		{0.002, -0.01, 0, 0.999}, {0.01, -0.03, 0, 0.999}, {0.05, -0.1, 0, 0.98}, {0.1, -0.3, 0, 0.999},
	} {
		p := &program{rng: rand.New(rand.NewPCG(2, 2)), sigma: c.sigma, longer: c.longer, stray: true}
		var n [4]int
		pairs, inside := 0, 0
		for seed := range uint64(duels) {
			d, o := p.duel(true, seed)
			n[o]++
			pairs += len(d.differ)
			if _, low, high := d.chosen(); low <= math.Expm1(c.longer) && math.Expm1(c.longer) <= high {
				inside++
			}
		}
		t.Logf("noise %g, longer by %g: found %d, as good %d, unshown %d of %d; %.1f pairs; the interval has the truth %d times", c.sigma, c.longer, n[worse], n[asGood], n[unshown], duels,
			float64(pairs)/duels, inside)
		if float64(n[worse]) < c.worse*duels || float64(n[asGood]) < c.asGood*duels || c.longer < 0 && n[worse] > 0 {
			t.Errorf("noise %g, longer by %g: longer %d, as good %d of %d", c.sigma, c.longer, n[worse], n[asGood], duels)
		}
	}
}

// Where the default is in force what was chosen is the other way, and both are told as people ask: the chosen over the default.
func TestADuelFromEitherSide(t *testing.T) {
	for _, plain := range []bool{true, false} {
		p := &program{rng: rand.New(rand.NewPCG(3, 3)), sigma: 0.002, longer: 0.02}
		want := worse
		if !plain {
			want = asGood
		}
		d, o := p.duel(plain, 7)
		if by, low, high := d.chosen(); o != want || math.Abs(by-0.0202) > 0.002 || low > by || by > high {
			t.Errorf("default is the other way: %t: outcome %d, want %d; longer by %.4f (%.4f to %.4f), want 0.0202", plain, o, want, by, low, high)
		}
	}
}
