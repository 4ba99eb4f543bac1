package tunersim

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// Table is what one machine measured in one condition: the cost of every choice, by collective and size.
type Table struct {
	Machine   string // "8xH200"
	NCCL      string // "2.28.9"
	Shape     state.Shape
	NICs      int    // a node; 0: none or not known
	Condition string // "quiet", "network-load", ...

	// Skipped counts rows of sizes of AllToAll that leave nothing to choose: NCCL asks no tuner about it, and none of our
	// kernels was measured.
	Skipped int

	points []*point // sorted by collective, bytes
}

// point is one measured size of a collective.
type point struct {
	collective actions.Collective
	bytes      uint64
	log2Bytes  float64
	defaultNs  float64 // geometric mean of its measurements
	defaults   int     // measurements of the default; Invariant: > 0 once the table is read
	costNs     map[actions.Action]float64
	counterNs  map[actions.Action]float64 // local completion, of the default too; nil: only costs are known
	order      []actions.Action           // forced choices as recorded
	best       actions.Action             // cheapest of the default and order
	bestNs     float64
}

func comparePoints(a, b *point) int {
	return cmp.Or(cmp.Compare(a.collective, b.collective), cmp.Compare(a.bytes, b.bytes))
}

// Buckets lists the measured buckets, by collective and size. Sizes that share a bucket are listed once.
func (t *Table) Buckets() []state.Bucket {
	var bs []state.Bucket
	for _, p := range t.points {
		b, ok := state.BucketOf(p.collective, p.bytes)
		if ok && !slices.Contains(bs, b) {
			bs = append(bs, b)
		}
	}
	return bs
}

// at finds the measured size nearest to bytes, in the logarithm; the smaller of two equally near.
func (t *Table) at(c actions.Collective, bytes uint64) *point {
	if bytes == 0 {
		return nil
	}
	var found *point
	nearest, want := math.Inf(1), math.Log2(float64(bytes))
	for _, p := range t.points {
		if p.collective != c {
			continue
		}
		if d := math.Abs(p.log2Bytes - want); d < nearest {
			found, nearest = p, d
		}
	}
	return found
}

// Topology is what learners are told of the machine.
func (t *Table) Topology() state.Topology { return state.Topology{Shape: t.Shape, NICs: t.NICs} }

func (t *Table) bucket(b state.Bucket) *point { return t.at(b.Collective, 1<<min(b.Log2Bytes, 63)) }

// Nearest gives the bucket of the measured size nearest to bytes; false when the collective was not measured.
func (t *Table) Nearest(c actions.Collective, bytes uint64) (state.Bucket, bool) {
	p := t.at(c, bytes)
	if p == nil {
		return state.Bucket{}, false
	}
	return state.Bucket{Collective: c, Log2Bytes: uint8(bits.Len64(p.bytes) - 1)}, true
}

// Actions is the action set of a bucket: NCCL's default, then every forced choice as recorded. NCCL's symmetric kernels
// without a name are left out: a tuner plugin cannot choose them (their cost can still be asked for).
func (t *Table) Actions(b state.Bucket) []actions.Action {
	set := []actions.Action{actions.Default}
	if p := t.bucket(b); p != nil {
		set = append(set, p.order...)
	}
	return set
}

// Cost is the measured cost in nanoseconds at the nearest measured size; false when it was not measured.
func (t *Table) Cost(b state.Bucket, a actions.Action) (ns float64, ok bool) {
	p := t.bucket(b)
	if p == nil {
		return 0, false
	}
	if a == actions.Default {
		return p.defaultNs, true
	}
	ns, ok = p.costNs[a]
	return ns, ok
}

// Default is the cost of NCCL's own choice.
func (t *Table) Default(b state.Bucket) (ns float64, ok bool) { return t.Cost(b, actions.Default) }

// Best is the cheapest action of Actions, the earliest of equals.
func (t *Table) Best(b state.Bucket) (best actions.Action, ns float64, ok bool) {
	p := t.bucket(b)
	if p == nil {
		return actions.Default, 0, false
	}
	return p.best, p.bestNs, true
}

// Row is one entry of a table that is made in memory.
type Row struct {
	Collective actions.Collective
	Bytes      uint64
	Action     actions.Action
	SignalNs   float64 // the cost: until the data is visible
	CounterNs  float64 // until the send buffer may be used again; 0: not known
}

// NewTable makes a table without a file, under the rules of ReadTable: every size has a default, no choice comes twice.
func NewTable(machine, nccl string, shape state.Shape, nics int, condition string, rows []Row) (*Table, error) {
	t := &Table{Machine: machine, NCCL: nccl, Shape: shape, NICs: nics, Condition: condition}
	for i, r := range rows {
		if err := t.addRow(r); err != nil {
			return nil, fmt.Errorf("row %d: %w: %w", i, err, ErrBadTable)
		}
	}
	if err := t.finish(); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Table) addRow(r Row) error {
	switch {
	case r.Collective >= actions.NumCollectives || r.Bytes == 0:
		return fmt.Errorf("%s of %d bytes is nothing to tune", r.Collective, r.Bytes)
	case !(r.SignalNs > 0) || r.SignalNs > 1000*maxMedianUs || !(r.CounterNs >= 0) || r.CounterNs > r.SignalNs:
		return fmt.Errorf("signal %g ns and counter %g ns are not times of one call", r.SignalNs, r.CounterNs)
	}
	if err := r.Action.Check(); err != nil {
		return err
	}
	p := t.pointOf(r.Collective, r.Bytes)
	if r.CounterNs > 0 {
		if p.counterNs == nil {
			p.counterNs = map[actions.Action]float64{}
		}
		p.counterNs[r.Action] = r.CounterNs
	}
	if r.Action == actions.Default {
		p.defaultNs += math.Log(r.SignalNs) // a sum of logarithms until the table is complete
		p.defaults++
		return nil
	}
	if _, dup := p.costNs[r.Action]; dup {
		return fmt.Errorf("%s %d bytes %s is given twice", r.Collective, r.Bytes, r.Action)
	}
	p.costNs[r.Action] = r.SignalNs
	if r.Action.Path != actions.PathSymmetric || r.Action.Symmetric != actions.SymmetricAny {
		p.order = append(p.order, r.Action)
	}
	return nil
}

// finish sorts the points and computes what follows from their rows.
func (t *Table) finish() error {
	t.points = slices.DeleteFunc(t.points, func(p *point) bool {
		idle := p.collective.Plain() == actions.AllToAll && len(p.order) == 0
		if idle {
			t.Skipped += p.defaults + len(p.costNs)
		}
		return idle
	})
	if len(t.points) == 0 {
		return fmt.Errorf("no measurements: %w", ErrBadTable)
	}
	slices.SortFunc(t.points, comparePoints)
	for _, p := range t.points {
		if p.defaults == 0 {
			return fmt.Errorf("%s of %d bytes has no default row, so nothing can be compared with it: %w", p.collective, p.bytes, ErrBadTable)
		}
		p.complete()
	}
	return nil
}

// Rows lists every entry, symmetric ones too, by collective, size and order of measurement.
func (t *Table) Rows() []Row {
	var rows []Row
	for _, p := range t.points {
		rows = append(rows, Row{p.collective, p.bytes, actions.Default, p.defaultNs, p.counterNs[actions.Default]})
		for _, a := range p.order {
			rows = append(rows, Row{p.collective, p.bytes, a, p.costNs[a], p.counterNs[a]})
		}
		sym := actions.Action{Path: actions.PathSymmetric}
		if ns, ok := p.costNs[sym]; ok {
			rows = append(rows, Row{p.collective, p.bytes, sym, ns, p.counterNs[sym]})
		}
	}
	return rows
}

// Counter is local completion in nanoseconds at the nearest size. A table that knows costs only answers with the
// default split (DefaultSplit); false when the choice was not measured.
func (t *Table) Counter(b state.Bucket, a actions.Action) (ns float64, ok bool) {
	p := t.bucket(b)
	if p == nil {
		return 0, false
	}
	if ns, ok = p.counterNs[a]; ok {
		return ns, true
	}
	signal, ok := t.Cost(b, a)
	return signal * DefaultSplit(t.Topology(), b, a), ok
}

// complete computes what follows from a point's rows.
func (p *point) complete() {
	p.defaultNs = math.Exp(p.defaultNs / float64(p.defaults))
	p.best, p.bestNs = actions.Default, p.defaultNs
	for _, a := range p.order {
		if c := p.costNs[a]; c < p.bestNs {
			p.best, p.bestNs = a, c
		}
	}
}
