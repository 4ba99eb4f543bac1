package tunersim

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// ErrBadTable is returned for a table that cannot be trusted; the message names the line.
var ErrBadTable = errors.New("bad measurement table")

var columns = []string{"machine", "nccl", "nranks", "nnodes", "transport", "condition", "collective", "bytes", "path",
	"algorithm", "protocol", "channels", "median_us", "nics", "threads", "backend"}

// required columns come first; without a later one its value is "-".
const required = 13

// maxMedianUs keeps sums of costs far inside an int64 of nanoseconds: an hour.
const maxMedianUs = 3.6e9

// ReadTable reads the table of one machine in one condition. Columns are found by name; columns that are not known are
// ignored, so that newer measurements with more columns can be read; a missing column is an error. Rows that repeat a
// choice are errors, but for NCCL's default, which is measured again between sweeps: its cost is the geometric mean.
func ReadTable(r io.Reader) (*Table, error) {
	rd := csv.NewReader(r)
	rd.ReuseRecord = true
	header, err := rd.Read()
	if err == io.EOF {
		return nil, fmt.Errorf("the file is empty: measure again or leave it out: %w", ErrBadTable)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the header: %w: %w", ErrBadTable, err)
	}
	header[0] = strings.TrimPrefix(header[0], "\ufeff") // as spreadsheets write it
	at := make([]int, len(columns))
	for i, name := range columns {
		at[i] = slices.Index(header, name)
		if at[i] < 0 && i >= required {
			continue
		}
		if at[i] < 0 {
			return nil, fmt.Errorf("line 1: no column %q: %w", name, ErrBadTable)
		}
		if slices.Index(header[at[i]+1:], name) >= 0 {
			return nil, fmt.Errorf("line 1: column %q twice: %w", name, ErrBadTable)
		}
	}
	t := &Table{}
	row := make([]string, len(columns))
	first := true
	for {
		rec, err := rd.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrBadTable, err) // encoding/csv names the line
		}
		for i, c := range at {
			row[i] = "-"
			if c >= 0 {
				row[i] = rec[c]
			}
		}
		if err := t.add(row, first); err != nil {
			line, _ := rd.FieldPos(0)
			return nil, fmt.Errorf("line %d: %w: %w", line, err, ErrBadTable)
		}
		first = false
	}
	if err := t.finish(); err != nil {
		return nil, err
	}
	return t, nil
}

// head checks the columns that are the same in every row.
func (t *Table) head(row []string, first bool) error {
	ranks, err := positive(row[2], "nranks")
	if err != nil {
		return err
	}
	nodes, err := positive(row[3], "nnodes")
	if err != nil {
		return err
	}
	nics := 0
	if row[13] != "-" {
		if nics, err = strconv.Atoi(row[13]); err != nil || nics < 0 {
			return fmt.Errorf("nics %q is not a number of NICs, write - when not known", row[13])
		}
	}
	transport := row[4]
	if transport == state.UnknownTransport {
		transport = ""
	}
	h := Table{Machine: row[0], NICs: nics, NCCL: row[1], Condition: row[5], Shape: state.Shape{Ranks: ranks, Nodes: nodes, Transport: transport}}
	if first {
		t.Machine, t.NCCL, t.Condition, t.Shape = strings.Clone(h.Machine), strings.Clone(h.NCCL), strings.Clone(h.Condition), h.Shape
		t.NICs = h.NICs
		t.Shape.Transport = strings.Clone(h.Shape.Transport)
	}
	if t.Machine != h.Machine || t.NCCL != h.NCCL || t.Condition != h.Condition || t.NICs != h.NICs || t.Shape != h.Shape {
		return errors.New("another machine, NCCL version, shape or condition than in the first row; use one file for each")
	}
	return nil
}

func positive(s, what string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("%s %q is not a positive number", what, s)
	}
	return n, nil
}

func (t *Table) add(row []string, first bool) error {
	if err := t.head(row, first); err != nil {
		return err
	}
	c, err := actions.ParseCollective(row[6])
	if err != nil {
		return err
	}
	bytes, err := strconv.ParseUint(row[7], 10, 63)
	if err != nil || bytes == 0 {
		return fmt.Errorf("bytes %q is not a positive number", row[7])
	}
	a, err := parseAction(row[8:12], row[14], row[15], c.Registered())
	if err != nil {
		return err
	}
	us, err := strconv.ParseFloat(row[12], 64)
	if err != nil || !(us > 0) || us > maxMedianUs {
		return fmt.Errorf("median_us %q is not a time", row[12])
	}
	p := t.pointOf(c, bytes)
	if a == actions.Default {
		p.defaultNs += math.Log(us * 1000) // a sum of logarithms until the table is complete
		p.defaults++
		return nil
	}
	if _, dup := p.costNs[a]; dup {
		return fmt.Errorf("%s %d bytes %s is measured twice", c, bytes, a)
	}
	p.costNs[a] = us * 1000
	if a.Path != actions.PathSymmetric || a.Symmetric != actions.SymmetricAny {
		p.order = append(p.order, a)
	}
	return nil
}

func (t *Table) pointOf(c actions.Collective, bytes uint64) *point {
	for _, p := range t.points {
		if p.collective == c && p.bytes == bytes {
			return p
		}
	}
	p := &point{collective: c, bytes: bytes, log2Bytes: math.Log2(float64(bytes)), costNs: map[actions.Action]float64{}}
	t.points = append(t.points, p)
	return p
}

// contextsOf reads what stands in the protocol's column of path gin: "c2", of its CTAs' contexts, or "-".
func wayOf(s string) (contexts uint8, flat bool, err error) {
	contexts, flat, ok := actions.ParseWay(s)
	if !ok {
		return 0, false, fmt.Errorf("path gin has contexts and flat in place of a protocol: %q is not -, c1 to c%d, flat or both, like c1/flat", s, actions.MaxContexts)
	}
	return contexts, flat, nil
}

// parseAction reads path, algorithm (of path lsa: kernel, of path gin: backend, of path symmetric: NCCL's kernel), protocol (of path gin: contexts, of path lsa: threads) and channels,
// threads and backend; "-" is what the path does not have. registered: on such memory NCCL's kernels go by name, with its own channels.
func parseAction(row []string, threads, backend string, registered bool) (a actions.Action, err error) {
	if a.Path, err = actions.ParsePath(row[0]); err != nil {
		return a, err
	}
	warps, inProtocol := actions.ParseThreads(row[2]) // of path lsa, where they have no column
	switch {
	case a.Path == actions.PathCollective:
		if a.Algorithm, err = actions.ParseAlgorithm(row[1]); err != nil {
			return a, err
		}
		if a.Protocol, err = actions.ParseProtocol(row[2]); err != nil {
			return a, err
		}
	case row[1] == "-" && row[2] == "-": // path lsa without a kernel is one shot, as before there were others
	case a.Path == actions.PathSymmetric && row[2] == "-" && registered:
		if a.Symmetric, err = actions.ParseSymmetric(row[1]); err != nil {
			return a, err
		}
	case a.Path == actions.PathLSA && (row[2] == "-" || inProtocol && threads == "-"):
		if a.Kernel, err = actions.ParseKernel(row[1]); err != nil {
			return a, err
		}
		a.Warps = warps
	case a.Path == actions.PathGIN && backend == "-": // where there is no column of backends
		if a.Backend, err = actions.ParseBackend(row[1]); err != nil {
			return a, err
		}
		if a.Contexts, a.Flat, err = wayOf(row[2]); err != nil {
			return a, err
		}
	default:
		return a, fmt.Errorf("path %s has no algorithm and protocol: write - for each, and for the algorithm of path lsa the kernel, of path gin the backend", a.Path)
	}
	if row[3] != "-" || a.Path == actions.PathCollective {
		n, err := strconv.ParseUint(row[3], 10, 8)
		if err != nil || n == 0 && (a.Path != actions.PathCollective || a.Protocol != actions.LL && !registered) {
			return a, fmt.Errorf("channels %q is not 1 to 255, nor 0 for NCCL's device kernel for LL", row[3])
		}
		a.Channels = uint8(n)
	}
	if threads != "-" {
		n, err := strconv.ParseUint(threads, 10, 16)
		if err != nil || n == 0 || n%actions.WarpThreads != 0 || n/actions.WarpThreads > 255 {
			return a, fmt.Errorf("threads %q is not a multiple of %d up to %d", threads, actions.WarpThreads, 255*actions.WarpThreads)
		}
		a.Warps = uint8(n / actions.WarpThreads)
	}
	if backend != "-" {
		if a.Backend, err = actions.ParseBackend(backend); err != nil {
			return a, err
		}
	}
	return a, a.Check()
}
