package tuner

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Clocks as measured on 4x H200 (apart by up to 0.4 ms, rates of -0.13 to 7.9 ppm against the host) and worse: after a
// second of samples that are told 0.5 us late at best and by an exponential time of 4 us more, the instants are right to
// 0.3 us but for the 0.5 us that all ranks share.
func TestRankClockFollowsADriftingClock(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		rate, offset := (rng.Float64()*2-1)*1.5e-5, rng.Int64N(1e15)-5e14
		var c rankClock
		worst := 0.0
		for at := int64(0); at < 5e9; at += 100_000 + rng.Int64N(400_000) {
			gpu := 1_700_000_000_000_000_000 + at
			truth := offset + int64(rate*float64(at))
			c.hear(gpu, truth+500+int64(4000*rng.ExpFloat64()))
			if at > 1e9 {
				worst = max(worst, math.Abs(float64(c.toHost(gpu)-gpu-truth-500)))
			}
		}
		if worst > 300 {
			t.Errorf("seed %d, rate %.1f ppm: off by %.0f ns", seed, rate*1e6, worst)
		}
	}
}

// A handful of calls a second is all that some programs make: the memory spans seconds then.
func TestRankClockWithFewSamples(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 1))
	var c rankClock
	for at := int64(0); at < 60e9; at += 200_000_000 {
		c.hear(at, 77+int64(6e-6*float64(at))+500+int64(2000*rng.ExpFloat64()))
		if off := c.toHost(at) - at - 577 - int64(6e-6*float64(at)); at > 4e9 && (off < -3000 || off > 3000) {
			t.Errorf("after %d ms: off by %d ns", at/1e6, off)
		}
	}
}

// One instant that a broken process made up, far ahead of all others, or a clock that was set back, does not end what is heard: the
// clock drifts on, and at 8 us a second an old line has all calls contradict themselves.
func TestRankClockOutlivesAWildInstant(t *testing.T) {
	for name, spoil := range map[string]func(c *rankClock, gpu int64) (back int64){
		"ahead":    func(c *rankClock, gpu int64) int64 { c.hear(gpu+1e15, 77); return 0 },
		"set back": func(*rankClock, int64) int64 { return 1e12 },
	} {
		rng := rand.New(rand.NewPCG(7, 1))
		var c rankClock
		worst, back := 0.0, int64(0)
		for at := int64(0); at < 10e9; at += 200_000 {
			if at == 2e9 {
				back = spoil(&c, 1e15+at)
			}
			gpu, ahead := 1e15+at-back, 77+back+int64(8e-6*float64(at))
			c.hear(gpu, ahead+500+int64(4000*rng.ExpFloat64()))
			if at > 4e9 {
				worst = max(worst, math.Abs(float64(c.toHost(gpu)-gpu-ahead-500)))
			}
		}
		if worst > 300 {
			t.Errorf("%s: off by %.0f ns", name, worst)
		}
	}
}

// A few that are told late, of slots that are over, change nothing.
func TestRankClockPassesOverStragglers(t *testing.T) {
	var c rankClock
	for at := int64(0); at < 2e9; at += 1_000_000 {
		c.hear(at, 500)
		if at > 1e9 {
			for range 4 {
				c.hear(at-500_000_000, 100_000)
			}
		}
		if off := c.toHost(at) - at - 500; at > 1e8 && off != 0 || c.known() != (at >= (clockMinimum-1)*1_000_000) {
			t.Fatalf("after %d ms: off by %d ns, known %v", at/1e6, off, c.known())
		}
	}
}

// The line never lies above a point: nothing is told before it happened.
func FuzzRankClock(f *testing.F) {
	f.Add(uint64(1), uint16(100), int64(1e6))
	f.Add(uint64(2), uint16(500), int64(1e9))
	f.Fuzz(func(t *testing.T, seed uint64, n uint16, step int64) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var c rankClock
		at, ahead := rng.Int64N(1e18), rng.Int64N(1e18)-5e17
		for range n {
			at += rng.Int64N(max(1, min(step, 1e11)))
			c.hear(at, ahead+rng.Int64N(1e6))
			for i := range c.n {
				p := c.points[i]
				if over := c.toHost(p.gpuNs) - p.gpuNs - p.aheadNs; over > 1 {
					t.Fatalf("the line is %d ns above a point", over)
				}
			}
		}
		if known := int(n) >= clockMinimum; c.known() != known {
			t.Fatalf("known after %d samples: %v", n, c.known())
		}
	})
}

func BenchmarkRankClockHear(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	var late [4096]int64
	for i := range late {
		late[i] = int64(4000 * rng.ExpFloat64())
	}
	var c rankClock
	at := int64(0)
	for i := 0; b.Loop(); i++ {
		at += 20_000
		c.hear(at, late[i&4095])
	}
}
