package render

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/units"
	"dynamiccl/state"
)

// runGraphs says what our kernels took when CUDA graphs ran them, those that ran most often first.
func runGraphs(w io.Writer, r control.RunReport) error {
	rows := replayed(r)
	if len(rows) == 0 {
		return nil
	}
	slices.SortStableFunc(rows, func(a, b control.Replay) int { return cmp.Compare(b.Replays, a.Replays) })
	fmt.Fprintln(w, prefix+"our kernels in CUDA graphs, of which about one in 64 is seen (medians since the last change)")
	t := columns(w)
	fmt.Fprintln(t, "  collective\tbytes\tchoice\tseen\tsignal\tcounter\tchanges")
	for _, v := range rows[:min(len(rows), runRows)] {
		counter := "-"
		if v.Counter != nil {
			counter = units.Duration(v.Counter.MedianNs)
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%d\t%s\t%s\t%d\n", v.Collective, state.FormatBytes(v.Bytes), v.Choice, v.Replays, units.Duration(v.Signal.MedianNs), counter, v.Changes)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if more := len(rows) - runRows; more > 0 {
		fmt.Fprintf(w, "  and %s that ran less often\n", units.Count(more, "choice"))
	}
	return nil
}

// replayed makes one row of what several communicators of a run captured alike: times are those of the one that ran it most.
func replayed(r control.RunReport) (rows []control.Replay) {
	for _, c := range r.Comms {
		for _, v := range c.Replays {
			i := slices.IndexFunc(rows, func(o control.Replay) bool {
				return o.Collective == v.Collective && o.Bytes == v.Bytes && o.Choice == v.Choice && o.Ranks == v.Ranks && o.Nodes == v.Nodes
			})
			if i < 0 {
				rows = append(rows, v)
				continue
			}
			both := v
			if rows[i].Replays > v.Replays {
				both = rows[i]
			}
			both.Replays, both.Changes = rows[i].Replays+v.Replays, rows[i].Changes+v.Changes
			rows[i] = both
		}
	}
	return rows
}
