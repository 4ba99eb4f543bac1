package render

import (
	"fmt"
	"io"

	"dynamiccl/cmd/dynamiccld/internal/compare"
	"dynamiccl/cmd/dynamiccld/internal/units"
)

// Comparison writes a table a scenario, the cheapest learner first.
func Comparison(w io.Writer, blocks []compare.Block, noise float64) error {
	for i, b := range blocks {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s, %s: %s of %s, noise %.3g%%, %s\n", b.Trace, b.Condition, units.Count(b.Buckets, "bucket"),
			units.Count(b.Calls, "call"), 100*noise, units.Count(b.Seeds, "seed"))
		t := columns(w)
		fmt.Fprintln(t, "    learner\tcost/oracle\tlast 8/oracle\tcost/default\tworst 100/default\tcalls to 5%\tregret at 64\tspeed at 32\t97% at 32")
		for _, l := range b.Lines {
			mark := " "
			if l.Best {
				mark = "*"
			}
			fmt.Fprintf(t, "  %s %s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", mark, l.Learner, figure(l.CostOverOracle, 3), figure(l.FinalOverOracle, 3),
				figure(l.CostOverDefault, 3), figure(l.Worst, 3), figure(l.Calls5, 1), figure(l.Regret64, 2), figure(l.At32, 3), figure(l.Within3, 2))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	_, err := fmt.Fprint(w, `
mean over seeds +- 95% interval; * best of those that do not know the table
calls to 5%: until the choice is, and stays, within 5% of the best; regret: calls of the
best action lost in 64; 97% at 32: part of the buckets with 97% of the best speed then
`)
	return err
}

func figure(f compare.Figure, digits int) string {
	if f.Half == 0 {
		return fmt.Sprintf("%.*f", digits, f.Mean)
	}
	return fmt.Sprintf("%.*f +-%.*f", digits, f.Mean, digits, f.Half)
}
