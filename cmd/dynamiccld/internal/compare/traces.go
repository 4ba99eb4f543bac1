package compare

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"dynamiccl/tuner/tunersim"
)

// ErrNoTraces is returned when patterns name no file.
var ErrNoTraces = errors.New("no traces")

// Traces reads the tables that the patterns name, each once, in the order of patterns and names. A trace goes by its
// file's name without .csv, or by its path where two files have one name.
func Traces(patterns []string) ([]tunersim.Trace, error) {
	var files []string
	for _, p := range patterns {
		found, err := filepath.Glob(p)
		if err != nil {
			return nil, fmt.Errorf("pattern %q: %w; quote it, and write \\[ for a bracket", p, err)
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("pattern %q names no file: %w; give CSV files with the columns of the measurements, like --traces 'measurements/*.csv'", p, ErrNoTraces)
		}
		for _, f := range found {
			if f = filepath.Clean(f); !slices.Contains(files, f) {
				files = append(files, f)
			}
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%w: give CSV files with the columns of the measurements, like --traces 'measurements/*.csv'", ErrNoTraces)
	}
	count := map[string]int{}
	for _, f := range files {
		count[stem(f)]++
	}
	traces := make([]tunersim.Trace, 0, len(files))
	for _, f := range files {
		table, err := read(f)
		if err != nil {
			return nil, err
		}
		name := stem(f)
		if count[name] > 1 {
			name = strings.TrimSuffix(f, ".csv")
		}
		traces = append(traces, tunersim.Trace{Name: name, Table: table})
	}
	return traces, nil
}

func stem(file string) string { return strings.TrimSuffix(filepath.Base(file), ".csv") }

func read(file string) (*tunersim.Table, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("reading traces: %w", err)
	}
	defer f.Close()
	table, err := tunersim.ReadTable(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(table.Buckets()) == 0 {
		return nil, fmt.Errorf("%s: no collective that NCCL asks a tuner about: %w", file, tunersim.ErrBadTable)
	}
	return table, nil
}
