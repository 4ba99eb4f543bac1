package render

import (
	"fmt"
	"io"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/units"
	"dynamiccl/state"
)

// writeGraphs says what our kernels took when CUDA graphs ran them, in medians since the last change.
func writeGraphs(w io.Writer, graphs []control.Replay, now time.Time) error {
	if len(graphs) == 0 {
		return nil
	}
	changed := false
	t := columns(w)
	fmt.Fprintf(t, "  in CUDA graphs\tbytes\treplays seen\tlast\tsignal\tcounter\tchanged since\n")
	for _, r := range graphs {
		counter, last := "-", "-"
		if r.Counter != nil {
			counter = units.Duration(r.Counter.MedianNs)
		}
		if r.Last != nil {
			last = units.Ago(*r.Last, now)
		}
		fmt.Fprintf(t, "  %s\t%s\t%d\t%s\t%s\t%s\t%s\n", r.Choice, state.FormatBytes(r.Bytes), r.Replays, last, units.Duration(r.Signal.MedianNs), counter,
			replayChanged(r, now))
		changed = changed || r.Changed != nil
	}
	if err := t.Flush(); err != nil || !changed {
		return err
	}
	_, err := fmt.Fprintln(w, "  graphs keep their choices for ever: whether others are better now only `dynamiccld calibrate` and a new capture can tell")
	return err
}

func replayChanged(r control.Replay, now time.Time) string {
	if r.Changed == nil {
		return "-"
	}
	from := func(c control.Change) string {
		return fmt.Sprintf("from %s to %s", units.Duration(c.BeforeNs), units.Duration(c.AfterNs))
	}
	s := fmt.Sprintf("%s (%s): signal %s", instant(r.Changed.At), units.Ago(r.Changed.At, now), from(r.Changed.Signal))
	if r.Changed.Counter != nil {
		s += ", counter " + from(*r.Changed.Counter)
	}
	if r.Changes > 1 {
		s += fmt.Sprintf("; the last of %d changes", r.Changes)
	}
	return s
}
