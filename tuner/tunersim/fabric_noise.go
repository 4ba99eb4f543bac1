package tunersim

import (
	"math"
	"math/rand/v2"
)

// CallNoise is how single calls differ from a table's counter and signal.
type CallNoise struct {
	Noise                // of the signal; the counter shares what both have in common
	CounterSigma float64 // standard deviation of what the counter's log has alone
	SignalSigma  float64 // and of what the signal's has alone
	DriftSigma   float64 // standard deviation of a slow drift of both; 0: none
	DriftCalls   float64 // calls after which the drift has forgotten 1 - 1/e of itself
}

// SplitNoise makes a Noise partly independent on both latencies: two thirds of the variance are common, as the same
// hops, clocks and neighbours delay both. Sigma stays the standard deviation of each.
func SplitNoise(n Noise) CallNoise {
	total := n.Sigma
	n.Sigma = total * math.Sqrt(2.0/3)
	alone := total * math.Sqrt(1.0/3)
	return CallNoise{Noise: n, CounterSigma: alone, SignalSigma: alone, DriftCalls: 200}
}

// Sampler draws calls. One sampler is one bucket's calls in order: it keeps the drift.
type Sampler struct {
	noise CallNoise
	rng   *rand.Rand
	drift float64
}

// NewSampler starts without drift.
func NewSampler(n CallNoise, rng *rand.Rand) *Sampler { return &Sampler{noise: n, rng: rng} }

// Draw gives what one call of these costs measured: local completion, visibility, and how late the last rank was. A
// counter is never later than its signal. It allocates nothing.
func (s *Sampler) Draw(c Cost, ranks int) (counterNs, signalNs, skewNs float64) {
	n, r := &s.noise, s.rng
	if n.DriftSigma > 0 && n.DriftCalls > 0 {
		keep := math.Exp(-1 / n.DriftCalls)
		s.drift = keep*s.drift + n.DriftSigma*math.Sqrt(1-keep*keep)*r.NormFloat64()
	}
	common := s.drift + n.Sigma*r.NormFloat64()
	counterLog, signalLog := common+n.CounterSigma*r.NormFloat64(), common+n.SignalSigma*r.NormFloat64()
	if r.Float64() < n.TailProb {
		tail := n.TailLog * r.ExpFloat64()
		signalLog += tail
		if r.Float64() < 0.5 { // what delayed the receiver did not always delay the sender
			counterLog += tail
		}
	}
	signalNs = max(1, c.SignalNs*math.Exp(signalLog))
	counterNs = min(max(1, c.CounterNs*math.Exp(counterLog)), signalNs)
	if n.SkewNs > 0 { // the latest of ranks' exponential latenesses minus the earliest
		u, v := 1-r.Float64(), r.Float64()
		latest := -n.SkewNs * math.Log(-math.Expm1(math.Log(u)/float64(max(ranks, 1))))
		skewNs = max(0, latest+n.SkewNs*math.Log1p(-v)/float64(max(ranks, 1)))
	}
	return counterNs, signalNs, skewNs
}

// Lost draws whether a call's group misses a sample and is never seen.
func (s *Sampler) Lost() bool { return s.rng.Float64() < s.noise.LostProb }
