package sweep

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/forced"
	"dynamiccl/cmd/internal/wholefile"
)

var tableColumns = []string{"machine", "nccl", "nranks", "nnodes", "transport", "condition", "collective", "bytes", "path",
	"algorithm", "protocol", "channels", "median_us"}

// table is the file of rows, which follows from the journal.
type table struct {
	path string
	head []string // what is the same in every row
}

func newTable(path string, d *Description) *table {
	id := d.Identity
	return &table{path, []string{id.Machine, id.NCCL, strconv.Itoa(id.Ranks), strconv.Itoa(id.Nodes), id.Transport, id.Condition}}
}

// rowKey is what makes a row: its choice as the table names it, and which of the default's rows it is.
type rowKey struct {
	collective string
	bytes      uint64
	choice     [4]string // path, algorithm, kernel or GIN's backend, protocol, channels or CTAs
	nth        int
}

// rows gives every row once, in the order of measurement, with the medians of its rounds.
func rows(points []Point) (keys []rowKey, us map[rowKey][]float64, err error) {
	us = map[rowKey][]float64{}
	for _, p := range points {
		if p.Outcome != OutcomeOK {
			continue
		}
		choice, err := choiceColumns(p)
		if err != nil {
			return nil, nil, err
		}
		k := rowKey{p.Collective, p.Bytes, choice, p.Nth}
		if us[k] == nil {
			keys = append(keys, k)
		}
		us[k] = append(us[k], p.MedianUs)
	}
	return keys, us, nil
}

// deviceKernel is what a point says of NCCL's device kernel for LL.
const deviceKernel = "device kernel"

// choiceColumns names a choice as tables do. They want a number of channels: where it was NCCL's own, what ran is told,
// and 0 where that was a device kernel, which has none. Our kernels, and GIN's backend, stand in the algorithm's column, its contexts and their threads in the protocol's, CTAs in the channels'.
func choiceColumns(p Point) (c [4]string, err error) {
	a, err := actions.Parse(p.Action)
	if err != nil {
		return c, err
	}
	if a == actions.Default {
		return [4]string{a.Path.String(), "-", "-", "-"}, nil
	}
	if a.Path == actions.PathSymmetric {
		return [4]string{a.Path.String(), a.Symmetric.String(), "-", "-"}, nil
	}
	if c, err := actions.ParseCollective(p.Collective); err == nil && c.Registered() && a.Path == actions.PathCollective {
		return [4]string{a.Path.String(), a.Algorithm.String(), a.Protocol.String(), "0"}, nil // a name has NCCL's own, whatever that was
	}
	if a.Channels == 0 && p.Ran != deviceKernel {
		ran, err := actions.Parse(p.Ran)
		if err != nil || ran.Channels == 0 {
			return c, fmt.Errorf("%s %d %s: channels that ran are not known", p.Collective, p.Bytes, p.Action)
		}
		a.Channels = ran.Channels
	}
	number := strconv.Itoa(int(a.Channels))
	switch a.Path {
	case actions.PathGIN:
		return [4]string{a.Path.String(), a.Backend.String(), a.FormatWay(), number}, nil
	case actions.PathLSA:
		return [4]string{a.Path.String(), a.Kernel.String(), cmp.Or(actions.FormatThreads(a.Warps), "-"), number}, nil
	}
	return [4]string{a.Path.String(), a.Algorithm.String(), a.Protocol.String(), number}, nil
}

// choiceName is how people write what the columns say.
func choiceName(c [4]string) string {
	if c[0] == actions.PathSymmetric.String() {
		return c[0] + "/" + c[1]
	}
	if c[0] == actions.PathLSA.String() || c[0] == actions.PathGIN.String() {
		name := strings.Join([]string{c[0], c[1], c[3]}, "/")
		if c[2] != "-" {
			name += "/" + c[2]
		}
		return name
	}
	return strings.Join(c[1:], "/")
}

// write makes the file anew.
func (t *table) write(points []Point) (written int, err error) {
	keys, us, err := rows(points)
	if err != nil {
		return 0, err
	}
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	_ = w.Write(tableColumns) // into memory: the error comes with Flush, and there is none
	for _, k := range keys {
		_ = w.Write(t.row(k, forced.Median(us[k])))
	}
	w.Flush()
	return len(keys), wholefile.Write(t.path, b.Bytes())
}

func (t *table) row(k rowKey, us float64) []string {
	return slices.Concat(t.head, []string{k.collective, strconv.FormatUint(k.bytes, 10)}, k.choice[:], []string{strconv.FormatFloat(us, 'f', 2, 64)})
}

// add appends the row of a point that is measured for the first time.
func (t *table) add(p Point) error {
	choice, err := choiceColumns(p)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	_ = w.Write(t.row(rowKey{p.Collective, p.Bytes, choice, p.Nth}, p.MedianUs))
	w.Flush()
	f, err := os.OpenFile(t.path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if _, err = f.Write(b.Bytes()); err == nil {
		err = f.Close()
	} else {
		_ = f.Close()
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w; make room and run the same command again", t.path, err)
	}
	return nil
}
