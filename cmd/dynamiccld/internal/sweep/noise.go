package sweep

import (
	"math"
	"slices"

	"dynamiccl/cmd/dynamiccld/internal/forced"
)

// Noise is what single calls of a choice look like: spread, tail and memory. The keys are an interface: add, never rename.
type Noise struct {
	MedianUs        float64 `json:"median_us"`
	LogSDMAD        float64 `json:"log_sd_mad"` // standard deviation of the logarithm, by the median distance: without the tail
	LogSD           float64 `json:"log_sd"`
	ShareOver15     float64 `json:"share_over_1.5x"` // of the median
	ShareOver2      float64 `json:"share_over_2x"`
	WorstOverMedian float64 `json:"worst_over_median"`
	Lag1            float64 `json:"lag1_autocorrelation"` // without the tail
}

// CallNoise is the noise of the calls of a point, by the rank that was fastest in each and by the slowest.
type CallNoise struct {
	Fastest          Noise   `json:"fastest"`
	Slowest          Noise   `json:"slowest"`
	RankSpreadMedian float64 `json:"rank_spread_median"` // slowest over fastest, less 1
}

// cutoff is in robust standard deviations: residuals beyond count as this, as the detector counts them.
const cutoff = 3

// mad over the standard deviation of a normal distribution.
const madOfNormal = 0.6745

// noiseOf tells of a series of calls; us are greater than 0, and at least one.
func noiseOf(us []float64) (n Noise) {
	n.MedianUs = forced.Median(us)
	n.WorstOverMedian = slices.Max(us) / n.MedianUs
	residuals, distances := make([]float64, len(us)), make([]float64, len(us))
	mean, each := 0.0, 1/float64(len(us))
	for i, x := range us {
		residuals[i] = math.Log(x / n.MedianUs)
		distances[i] = math.Abs(residuals[i])
		mean += residuals[i] * each
		if x > 1.5*n.MedianUs {
			n.ShareOver15 += each
		}
		if x > 2*n.MedianUs {
			n.ShareOver2 += each
		}
	}
	n.LogSDMAD = forced.Median(distances) / madOfNormal
	variance, lag0, lag1, before := 0.0, 0.0, 0.0, 0.0
	for _, r := range residuals {
		variance += (r - mean) * (r - mean) * each
		cut := max(-cutoff*n.LogSDMAD, min(cutoff*n.LogSDMAD, r))
		lag0 += cut * cut
		lag1 += cut * before
		before = cut
	}
	n.LogSD = math.Sqrt(variance)
	if lag0 > 0 {
		n.Lag1 = lag1 / lag0
	}
	return n
}

// callNoise tells of the calls of all ranks, [rank][call], as many as every rank has.
func callNoise(ranks [][]float64) *CallNoise {
	calls := len(ranks[0])
	for _, us := range ranks {
		calls = min(calls, len(us))
	}
	fastest, slowest, spread := make([]float64, calls), make([]float64, calls), make([]float64, calls)
	for i := range calls {
		fastest[i], slowest[i] = ranks[0][i], ranks[0][i]
		for _, us := range ranks[1:] {
			fastest[i], slowest[i] = min(fastest[i], us[i]), max(slowest[i], us[i])
		}
		spread[i] = slowest[i]/fastest[i] - 1
	}
	return &CallNoise{Fastest: noiseOf(fastest), Slowest: noiseOf(slowest), RankSpreadMedian: forced.Median(spread)}
}
