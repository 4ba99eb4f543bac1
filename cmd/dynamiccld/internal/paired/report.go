package paired

import (
	"fmt"
	"io"
	"text/tabwriter"

	"dynamiccl/cmd/dynamiccld/internal/units"
	"dynamiccl/state"
)

// report writes the table for people.
func (r *runner) report() error {
	base := r.arms[0].Name
	for _, p := range r.summary {
		fmt.Fprintf(r.o.Report, "phase %d, %s: %.0f s, %s; medians and ratios of its last half\n", p.Phase+1, p.Load, p.Seconds, units.Count(p.Rounds, "round"))
		w := tabwriter.NewWriter(r.o.Report, 0, 0, 2, ' ', 0)
		fmt.Fprintf(w, "collective\tsize\t%s us", base)
		for _, a := range r.arms[1:] {
			fmt.Fprintf(w, "\t%s us\t%s/%s\t95%% interval", a.Name, base, a.Name)
		}
		fmt.Fprintln(w)
		for _, point := range p.Points {
			fmt.Fprintf(w, "%s\t%s\t%s", point.Collective, state.FormatBytes(point.Bytes), us(point.Us[base]))
			for _, a := range r.arms[1:] {
				fmt.Fprintf(w, "\t%s\t%s", us(point.Us[a.Name]), point.Ratio[a.Name])
			}
			fmt.Fprintln(w)
		}
		if err := w.Flush(); err != nil {
			return err
		}
		for _, a := range r.arms[1:] {
			p.say(r.o.Report, a.Name)
			if h := p.Detector[a.Name]; h != nil {
				fmt.Fprintf(r.o.Report, "%s: %s\n", a.Name, h)
			}
		}
	}
	if r.o.Out != "" {
		fmt.Fprintf(r.o.Report, "rounds and summaries are in %s\n", r.o.Out)
	}
	return nil
}

// String is ratio and interval as two cells of the table.
func (r Ratio) String() string {
	if r.Low == nil {
		return fmt.Sprintf("%.3f\t-", r.Median)
	}
	return fmt.Sprintf("%.3f\t%.3f to %.3f", r.Median, *r.Low, *r.High)
}

// say writes an arm's line of a phase.
func (p *PhaseSummary) say(w io.Writer, arm string) {
	g, worst, adapt := p.Geomean[arm], p.Worst[arm], p.Adapt[arm]
	interval := ""
	if g.Low != nil {
		interval = fmt.Sprintf(" (%.3f to %.3f)", *g.Low, *g.High)
	}
	settled := "never more than 5% below what it ended with"
	switch {
	case !adapt.Settled && p.Rounds < adaptRounds:
		settled = fmt.Sprintf("fewer than %d rounds do not show when it had adapted", adaptRounds)
	case !adapt.Settled:
		settled = "not settled in this phase"
	case adapt.Seconds != nil:
		settled = fmt.Sprintf("adapted after %.1f s", *adapt.Seconds)
	}
	fmt.Fprintf(w, "%s: %.3fx in the geometric mean%s, %.3fx over the whole phase with all trials, worst %s %s %.3fx; %s\n", arm, g.Median, interval,
		p.Whole[arm], worst.Collective, state.FormatBytes(worst.Bytes), worst.Ratio, settled)
}

func us(v float64) string {
	if v < 1000 {
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.0f", v)
}
