package compare

import (
	"fmt"
	"strings"

	"dynamiccl/cmd/internal/tracefile"
	"dynamiccl/tuner/tunersim"
)

// Traces reads the tables that the patterns name, each once, in the order of patterns and names. A trace goes by its
// file's name without .csv, or by its path where two files have one name. warn hears of rows that no learner can play.
func Traces(patterns []string, warn func(string)) ([]tunersim.Trace, error) {
	files, err := tracefile.Find(patterns)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%w: %s", tracefile.ErrNoTraces, tracefile.Remedy)
	}
	count := map[string]int{}
	for _, f := range files {
		count[tracefile.Stem(f)]++
	}
	traces := make([]tunersim.Trace, 0, len(files))
	for _, f := range files {
		table, err := tracefile.Read(f)
		if err != nil {
			return nil, err
		}
		if table.Skipped > 0 {
			warn(fmt.Sprintf("%s: AllToAll is left out (rows: %d), since NCCL's choice of it is all that was measured", f, table.Skipped))
		}
		name := tracefile.Stem(f)
		if count[name] > 1 {
			name = strings.TrimSuffix(f, ".csv")
		}
		traces = append(traces, tunersim.Trace{Name: name, Table: table})
	}
	return traces, nil
}
