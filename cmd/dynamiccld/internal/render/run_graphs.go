package render

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"dynamiccl/actions"
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

// runBlind says which choices went into CUDA graphs without anything to go by, and what measures them.
func runBlind(w io.Writer, r control.RunReport) error {
	sizes := blind(r)
	if len(sizes) == 0 {
		return nil
	}
	registered := 0
	var names []string
	for _, s := range sizes {
		names = append(names, s.name)
		if s.registered {
			registered++
		}
	}
	measure := "dynamiccld calibrate"
	switch registered {
	case 0:
	case len(sizes):
		measure += " --buffers registered"
	default:
		measure += " --buffers all"
	}
	if nccl := blindVersions(r); nccl != "" {
		measure += fmt.Sprintf(" (NCCL %s; --nccl-lib FILE where the loader finds another)", nccl)
	}
	_, err := fmt.Fprintf(w, prefix+"CUDA graphs hold NCCL's default where nothing was measured: %s; measure first: %s\n", strings.Join(names, ", "), measure)
	return err
}

// blindVersions are those of NCCL that captured so: what is measured holds for one alone. "": not known.
func blindVersions(r control.RunReport) string {
	var all []string
	for _, c := range r.Comms {
		if c.NCCLVersion != "" && slices.ContainsFunc(c.Captured, isBlind) {
			all = append(all, c.NCCLVersion)
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}

func isBlind(g control.Captured) bool { return !g.Supported && g.Choice == actions.Default.String() }

// blindSizes are sizes of a collective that adjoin.
type blindSizes struct {
	name       string
	registered bool // on registered buffers
}

// blind names the collectives and sizes that were captured with nothing measured to choose by, each once; adjoining sizes
// are one range.
func blind(r control.RunReport) (sizes []blindSizes) {
	var all []control.Captured
	for _, c := range r.Comms {
		for _, g := range c.Captured {
			if isBlind(g) {
				all = append(all, control.Captured{Collective: g.Collective, MinBytes: g.MinBytes})
			}
		}
	}
	slices.SortFunc(all, func(a, b control.Captured) int {
		return cmp.Or(cmp.Compare(a.Collective, b.Collective), cmp.Compare(a.MinBytes, b.MinBytes))
	})
	all = slices.Compact(all)
	for i := 0; i < len(all); {
		last := i
		for last+1 < len(all) && all[last+1].Collective == all[i].Collective && all[last+1].MinBytes == 2*all[last].MinBytes {
			last++
		}
		name := all[i].Collective + " " + state.FormatBytes(all[i].MinBytes)
		if last > i {
			name += " to " + state.FormatBytes(all[last].MinBytes)
		}
		c, err := actions.ParseCollective(all[i].Collective)
		sizes = append(sizes, blindSizes{name, err == nil && c.Registered()})
		i = last + 1
	}
	return sizes
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
