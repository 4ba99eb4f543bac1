package calibrate

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/sweep"
	"dynamiccl/cmd/dynamiccld/internal/units"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// Result is what was found. The keys of its JSON are an interface: add, never rename.
type Result struct {
	Store         string        `json:"store"`
	GPUArch       string        `json:"gpu_arch"`
	Learner       string        `json:"learner"`
	BudgetSeconds float64       `json:"budget_seconds"`
	Seconds       float64       `json:"seconds"`
	Warnings      []string      `json:"warnings"`
	Shapes        []ShapeResult `json:"shapes"`
}

// ShapeResult is one communicator shape on one kind of buffers.
type ShapeResult struct {
	Machine string         `json:"machine"` // as the store has it
	NCCL    string         `json:"nccl"`
	Ranks   int            `json:"ranks"`
	Nodes   int            `json:"nodes"`
	Over    string         `json:"transport"` // between the ranks; "": not known
	Buffers string         `json:"buffers"`   // plain or registered
	Seconds float64        `json:"seconds"`
	Points  int            `json:"points"`
	Buckets []BucketResult `json:"buckets"` // by collective and size
}

func (s ShapeResult) target() target {
	return target{Shape: state.Shape{Ranks: s.Ranks, Nodes: s.Nodes}, registered: s.Buffers == sweep.BuffersRegistered}
}

// BucketResult is one collective and size.
type BucketResult struct {
	Collective string  `json:"collective"`
	MinBytes   uint64  `json:"min_bytes"` // of the bucket, which ends below twice that
	Choice     string  `json:"choice"`    // "": not known
	DefaultUs  float64 `json:"default_us"`
	Memory     string  `json:"default_memory,omitempty"` // "nccl": that is NCCL's default in memory that NCCL registers in graphs by itself
	ChoiceUs   float64 `json:"choice_us"`
	Ratio      float64 `json:"ratio"` // default over choice
	Points     int     `json:"points"`
	Stored     bool    `json:"stored"`
	Why        string  `json:"why,omitempty"` // it is not stored
}

// noisy is from which ratio of the default's largest measurement to its smallest on a machine counts as not idle.
const noisy = 1.15

// add takes in a shape that has ended.
func (r *Result) add(t *tuning, key tuner.Key, took time.Duration) {
	s := ShapeResult{Machine: key.Machine, NCCL: version(key), Ranks: key.Shape.Ranks, Nodes: key.Shape.Nodes, Over: key.Shape.Transport, Buffers: t.at.buffers(), Seconds: took.Seconds(), Points: t.points,
		Buckets: []BucketResult{}}
	var worst *bucket
	loud := 0
	for _, b := range t.buckets {
		s.Buckets = append(s.Buckets, t.result(b, key))
		if b.spread() > noisy {
			loud++
			if worst == nil || b.spread() > worst.spread() {
				worst = b
			}
		}
	}
	order := t.at.collectives(&Options{Collectives: Collectives})
	slices.SortStableFunc(s.Buckets, func(a, b BucketResult) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Collective), slices.Index(order, b.Collective)), cmp.Compare(a.MinBytes, b.MinBytes))
	})
	if loud > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%s: NCCL's default took %.0f%% longer at one time than at another (%s %s; more than 15%% at %d of %d sizes): "+
			"something else used the machine; calibrate again when it is idle", t.at, 100*(worst.spread()-1), worst.name, state.FormatBytes(worst.bytes), loud, len(t.buckets)))
	}
	r.Shapes = append(r.Shapes, s)
}

func (t *tuning) result(b *bucket, key tuner.Key) BucketResult {
	r := BucketResult{Collective: b.name, MinBytes: 1 << b.Log2Bytes, DefaultUs: b.us, Memory: b.memory, Points: b.n, Stored: b.kept}
	l, ok := t.learned(b, key)
	switch {
	case ok && b.kept:
		r.Choice, r.DefaultUs, r.ChoiceUs = l.Action.String(), l.Default/1e3, l.CostNs/1e3
		r.Ratio = r.DefaultUs / r.ChoiceUs
	case b.err != nil:
		r.Choice, r.Why = actions.Default.String(), b.err.Error()
	case b.n == 0:
		r.Why = "not reached"
	default:
		r.Why = "not measured often enough"
	}
	return r
}

// Lines of the table that say nothing are left out.
func (r BucketResult) unsettled() bool { return !r.Stored && r.Choice == "" }

// mark says of a default's time that the last lines have something about it.
func (r BucketResult) mark() string {
	if r.Memory == "" {
		return ""
	}
	return "*"
}

// Write shows a result to people.
func (r *Result) Write(w io.Writer) error {
	stored, missing := 0, 0
	for _, s := range r.Shapes {
		over := ""
		if s.Over != "" {
			over = "over " + s.Over + ", "
		}
		fmt.Fprintf(w, "%s: %s%s, NCCL %s, %d measurements in %.1f s\n", s.target(), over, s.Machine, s.NCCL, s.Points, s.Seconds)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "  collective\tsize\tchoice\tdefault us\tchoice us\tratio")
		for _, b := range s.Buckets {
			if b.unsettled() {
				missing++
				continue
			}
			if !b.Stored {
				continue
			}
			stored++
			fmt.Fprintf(t, "  %s\t%s\t%s\t%.2f%s\t%.2f\t%.2fx\n", b.Collective, state.FormatBytes(b.MinBytes), b.Choice, b.DefaultUs, b.mark(), b.ChoiceUs, b.Ratio)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		r.writeMissing(w, s)
		if slices.ContainsFunc(s.Buckets, func(b BucketResult) bool { return b.Stored && b.Memory != "" }) {
			fmt.Fprintln(w, "  * of NCCL's default in buffers from ncclMemAlloc, which NCCL registers in graphs by itself: it is slower in cudaMalloc's, and no choice may be slower in either")
		}
	}
	for _, text := range r.Warnings {
		fmt.Fprintf(w, "warning: %s\n", text)
	}
	verb := "are"
	if stored == 1 {
		verb = "is"
	}
	_, err := fmt.Fprintf(w, "%s %s in %s after %.1f s", units.Count(stored, "choice"), verb, r.Store, r.Seconds)
	if err == nil && missing > 0 {
		_, err = fmt.Fprintf(w, "; %d sizes were not settled: give more time with --budget", missing)
	}
	if err == nil && stored == 0 {
		_, err = fmt.Fprintln(w)
		return err
	}
	if err == nil {
		_, err = fmt.Fprint(w, "\nThey hold for programs under `dynamiccld run` or `serve`, from a communicator's 17th call: its first 16 calls, in a CUDA graph\n"+
			"or not, are NCCL's default. A program that captures should make 16 calls before, as warm-up steps do, and run without trials:\n"+
			"dynamiccld run --no-explore -- PROGRAM\n")
	}
	if err == nil && slices.ContainsFunc(r.Shapes, func(s ShapeResult) bool { return s.target().registered }) {
		_, err = fmt.Fprint(w, "Those on registered buffers hold once a warm-up step has called the collective on such a buffer, with any size, and a daemon has had\n"+
			"0.2 s since.\n")
	}
	if err == nil {
		_, err = fmt.Fprint(w, r.network())
	}
	return err
}

// network says what of what was found holds between nodes.
func (r *Result) network() string {
	if slices.ContainsFunc(r.Shapes, func(s ShapeResult) bool { return s.Nodes > 1 }) {
		return "Nodes were pretended on this machine. Programs of as many ranks and nodes over real hosts find these choices, too, and their network is another:\n" +
			"where such run from this store, calibrate pretended nodes into one of their own (--store).\n"
	}
	return "Nothing was measured over a network: --nodes 1,2 does so with nodes that are pretended on this machine.\n"
}

// writeMissing names what was not settled, sizes that adjoin as one range.
func (r *Result) writeMissing(w io.Writer, s ShapeResult) {
	for i := 0; i < len(s.Buckets); {
		b := s.Buckets[i]
		if b.Stored {
			i++
			continue
		}
		last := i
		for last+1 < len(s.Buckets) && !s.Buckets[last+1].Stored && s.Buckets[last+1].Collective == b.Collective && s.Buckets[last+1].Why == b.Why {
			last++
		}
		sizes := state.FormatBytes(b.MinBytes)
		if last > i {
			sizes += " to " + state.FormatBytes(s.Buckets[last].MinBytes)
		}
		fmt.Fprintf(w, "  not stored: %s %s: %s\n", b.Collective, sizes, b.Why)
		i = last + 1
	}
}
