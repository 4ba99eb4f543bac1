package paired

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"dynamiccl/cmd/dynamiccld/internal/forced"
)

// Ratio is base over arm, above 1 where the arm is faster, with its 95% interval; none where there are too few rounds.
type Ratio struct {
	Median float64  `json:"ratio"`
	Low    *float64 `json:"low"`
	High   *float64 `json:"high"`
}

// figures are the digits of ratios: a tenth of a permille shows.
const figures = 5

// tail is what may lie on each side of an interval.
const tail = 0.025

// ratioOf is the median of paired ratios, and the interval between two of them that the sign test gives: it asks for no
// shape of the noise, and needs six values.
func ratioOf(ratios []float64) Ratio {
	sorted := slices.Sorted(slices.Values(ratios))
	n := len(sorted)
	r := Ratio{Median: digits(forced.Median(sorted), figures)}
	below := distuv.Binomial{N: float64(n), P: 0.5}
	k := 0 // values on each side that the interval leaves out
	for k < n/2 && below.CDF(float64(k)) <= tail {
		k++
	}
	if k > 0 {
		low, high := digits(sorted[k-1], figures), digits(sorted[n-k], figures)
		r.Low, r.High = &low, &high
	}
	return r
}

// series is what the rounds of a phase gave at one point: for each arm as many values as there are times.
type series struct {
	Point
	at   []float64   // seconds since the phase began, at the end of the round's batches
	us   [][]float64 // by arm: median of the batch on the slowest rank
	mean [][]float64 // by arm: mean of the batch on the slowest rank
}

// from is the index of the first round that ended at or after so many seconds; all where that would be none.
func from(at []float64, seconds float64) int {
	i, _ := slices.BinarySearch(at, seconds)
	if i == len(at) {
		return 0
	}
	return i
}

// ratios are base over arm, round by round.
func ratios(us [][]float64, arm int) []float64 {
	all := make([]float64, len(us[arm]))
	for i := range all {
		all[i] = us[0][i] / us[arm][i]
	}
	return all
}

// whole is what all batches of the base took over what all of the arm took: trials and their price included.
func whole(mean [][]float64, arm int) float64 {
	return digits(sum(mean[0])/sum(mean[arm]), figures)
}

func sum(values []float64) (s float64) {
	for _, v := range values {
		s += v
	}
	return s
}

// geomean of values that are not empty.
func geomean(values []float64) float64 {
	s := 0.0
	for _, v := range values {
		s += math.Log(v)
	}
	return math.Exp(s / float64(len(values)))
}

// byRound gives for each round that all points have the geometric mean of their ratios, and when the round ended.
func byRound(all []*series, arm int) (at, means []float64) {
	rounds := math.MaxInt
	for _, s := range all {
		rounds = min(rounds, len(s.at))
	}
	if len(all) == 0 {
		return nil, nil
	}
	of := make([]float64, len(all))
	for i := range rounds {
		for j, s := range all {
			of[j] = s.us[0][i] / s.us[arm][i]
		}
		at = append(at, all[len(all)-1].at[i])
		means = append(means, geomean(of))
	}
	return at, means
}

// Adapted says when an arm had found what it ended with.
type Adapted struct {
	// Seconds from the phase's beginning until the arm's speed-up stayed within 5% of what it is in the phase's last third;
	// nil: it was never further below, or Settled is false.
	Seconds *float64 `json:"seconds"`
	Settled bool     `json:"settled"` // false: it was below in the last third too, or there are fewer than 6 rounds
}

// What counts as adapted.
const (
	adaptWithin = 0.05
	adaptSpan   = 5 // rounds whose median counts for the one in the middle: one round that was disturbed is no relapse
	adaptRounds = 6 // fewer show nothing
)

// adapted finds the time from the geometric means of the rounds of a phase.
func adapted(at, means []float64, duration float64) Adapted {
	n := len(means)
	if n < adaptRounds {
		return Adapted{}
	}
	third := from(at, duration*2/3)
	level := forced.Median(means[third:]) * (1 - adaptWithin)
	last := -1
	for i := range means {
		half := min(i, n-1-i, adaptSpan/2)
		if forced.Median(means[i-half:i+half+1]) < level {
			last = i
		}
	}
	switch {
	case last < 0:
		return Adapted{Settled: true}
	case last >= third:
		return Adapted{}
	}
	return Adapted{Seconds: new(digits(at[last+1], figures)), Settled: true}
}

// worst is the index of the smallest ratio.
func worst(all []PointSummary, arm string) int {
	at := 0
	for i := range all {
		if cmp.Less(all[i].Ratio[arm].Median, all[at].Ratio[arm].Median) {
			at = i
		}
	}
	return at
}
