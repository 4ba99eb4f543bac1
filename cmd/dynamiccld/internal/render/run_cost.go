package render

import (
	"fmt"
	"io"
	"strings"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/units"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// watchingCost is what timing calls cost, by what it costs one (tuner.WatchNs): nobody measures it in a run. It is in no number beside it.
func watchingCost(r control.RunReport) string {
	timed := uint64(0)
	for _, c := range r.Comms {
		for _, b := range c.Buckets {
			timed += b.Calls
		}
	}
	if timed == 0 {
		return ""
	}
	return fmt.Sprintf("; watching cost about %s, %s for each timed call", units.Duration(float64(timed)*tuner.WatchNs), units.Duration(tuner.WatchNs))
}

// runTraffic says what was done for NCCL's Socket network, and no more: nothing ran without it that it could be held against.
func runTraffic(w io.Writer, t *control.Traffic) error {
	if t == nil {
		return nil
	}
	var parts []string
	if t.LongBytes > 0 {
		parts = append(parts, fmt.Sprintf("threads of ours moved %s of %s in messages of 64 KiB and more", state.FormatBytes(t.MovedBytes), state.FormatBytes(t.LongBytes)))
	}
	if t.Together > 0 {
		parts = append(parts, fmt.Sprintf("%d messages went in one packet with their size", t.Together))
	}
	_, err := fmt.Fprintf(w, prefix+"over sockets, on this host: %s; what that gained is not known and in no number above\n", strings.Join(parts, "; "))
	return err
}
