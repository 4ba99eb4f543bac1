package render

import (
	"fmt"
	"io"

	"dynamiccl/cmd/dynamiccld/internal/doctor"
	"dynamiccl/cmd/dynamiccld/internal/units"
)

// Doctor writes findings and, under what is not right, the remedy.
func Doctor(w io.Writer, r doctor.Report) error {
	for _, f := range r.Findings {
		fmt.Fprintf(w, "%-4s  %-9s  %s\n", f.Level, f.Check, f.Text)
		if f.Remedy != "" {
			fmt.Fprintf(w, "%17s-> %s\n", "", f.Remedy)
		}
	}
	_, err := fmt.Fprintf(w, "%d ok, %s, %s\n", r.OK, units.Count(r.Warnings, "warning"), units.Count(r.Failures, "failure"))
	return err
}
