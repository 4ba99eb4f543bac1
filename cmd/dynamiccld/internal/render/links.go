package render

import (
	"fmt"
	"io"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/units"
	"dynamiccl/state"
)

// Links writes what puts over GIN take on each way, in medians since the last alarm, a line for each size.
func Links(w io.Writer, all []control.Link, now time.Time) error {
	t := columns(w)
	fmt.Fprintf(t, "communicator\tway\tcontext\tbytes\ttrips seen\tlast\tsignal, there and back\tcounter\tdiagnosis\n")
	for _, l := range all {
		last := "-"
		if l.Last != nil {
			last = units.Ago(*l.Last, now)
		}
		for i, s := range l.Sizes {
			counter, said := "-", ""
			if s.Counter != nil {
				counter = units.Duration(s.Counter.MedianNs)
			}
			if i == 0 {
				said = linkDiagnosis(l, now)
			}
			fmt.Fprintf(t, "%s\t%d to %d\t%d, %s\t%s\t%d\t%s\t%s\t%s\t%s\n", l.Comm, l.Rank, l.Peer, l.Context, l.Backend, state.FormatBytes(s.MinBytes), s.Trips, last,
				units.Duration(s.Signal.MedianNs), counter, said)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, l := range all {
		for _, s := range l.Saturated {
			if _, err := fmt.Fprintf(w, "%s %d to %d over context %d: %s\n", l.Comm, l.Rank, l.Peer, l.Context, s); err != nil {
				return err
			}
		}
	}
	return nil
}

func linkDiagnosis(l control.Link, now time.Time) string {
	if l.Changed == nil {
		return "-"
	}
	return fmt.Sprintf("%s, %s: %s", l.Diagnosis, units.Ago(*l.Changed, now), l.Detail)
}
