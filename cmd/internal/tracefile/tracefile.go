// Package tracefile finds and reads the CSV files that --traces names, for all programs here.
package tracefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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

// Bounds of a table: every collective and size with all choices of a large machine is less than the first.
const (
	maxBytes = 64 << 20
	maxLine  = 64 << 10
)

// bounded reads a table within its bounds: encoding/csv holds a whole line, and a table all rows, so that a device or a
// file with holes would take all memory.
type bounded struct {
	r         io.Reader
	all, line int // bytes read, and since the last line's end
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	b.all += n
	for rest := p[:n]; ; {
		end := bytes.IndexByte(rest, '\n')
		if b.line += max(end, 0); end < 0 {
			b.line += len(rest)
		}
		switch {
		case b.line > maxLine:
			return 0, fmt.Errorf("a line is longer than %d bytes, and no table has such", maxLine)
		case b.all > maxBytes:
			return 0, fmt.Errorf("it is larger than %d bytes; split it", maxBytes)
		case end < 0:
			return n, err
		}
		rest, b.line = rest[end+1:], 0
	}
}

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
	table, err := tunersim.ReadTable(&bounded{r: f})
	if err != nil {
		return nil, fmt.Errorf("%s: %w; %s", file, err, Remedy)
	}
	if len(table.Buckets()) == 0 {
		return nil, fmt.Errorf("%s: no collective that NCCL asks a tuner about: %w", file, tunersim.ErrBadTable)
	}
	return table, nil
}
