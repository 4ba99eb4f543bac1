package forced

import (
	"slices"

	"gonum.org/v1/gonum/stat"
)

// Median of values that are not empty.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

// spread is the interquartile range.
func spread(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return stat.Quantile(0.75, stat.LinInterp, sorted, nil) - stat.Quantile(0.25, stat.LinInterp, sorted, nil)
}

// Slowest gives the largest median of the ranks, the spread of the slowest of each replay, and every rank's median.
func Slowest(ranks [][]float64) (us, iqr float64, medians []float64) {
	replays := len(ranks[0])
	for _, r := range ranks {
		medians = append(medians, Median(r))
		replays = min(replays, len(r))
	}
	most := slices.Clone(ranks[0][:replays])
	for _, r := range ranks {
		for i := range most {
			most[i] = max(most[i], r[i])
		}
	}
	return slices.Max(medians), spread(most), medians
}
