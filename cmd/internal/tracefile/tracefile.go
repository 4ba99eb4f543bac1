// Package tracefile finds and reads the CSV files that --traces names, for all programs here.
package tracefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"dynamiccl/tuner/tunersim"
)

// ErrNoTraces is returned when a pattern names no file.
var ErrNoTraces = errors.New("no traces")

// Remedy is what to do about ErrNoTraces, and about a file that is no table.
const Remedy = "give CSV files with the columns of the measurements, like --traces 'measurements/*.csv'"

// Find gives the files that patterns name, each once, in the order of patterns and names.
func Find(patterns []string) ([]string, error) {
	var files []string
	for _, p := range patterns {
		found, err := filepath.Glob(p)
		if err != nil {
			return nil, fmt.Errorf("pattern %q: %w; quote it, and write \\[ for a bracket", p, err)
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("pattern %q names no file: %w; %s", p, ErrNoTraces, Remedy)
		}
		for _, f := range found {
			if f = filepath.Clean(f); !slices.Contains(files, f) {
				files = append(files, f)
			}
		}
	}
	return files, nil
}

// Stem is what a file's table is called.
func Stem(file string) string { return strings.TrimSuffix(filepath.Base(file), ".csv") }

// Read reads one table; one without anything to tune is an error.
func Read(file string) (*tunersim.Table, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe that nobody writes into ends at once
	if err != nil {
		return nil, fmt.Errorf("reading traces: %w", err)
	}
	defer f.Close()
	table, err := tunersim.ReadTable(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; %s", file, err, Remedy)
	}
	if len(table.Buckets()) == 0 {
		return nil, fmt.Errorf("%s: no collective that NCCL asks a tuner about: %w", file, tunersim.ErrBadTable)
	}
	return table, nil
}
