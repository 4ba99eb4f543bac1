package render

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/units"
	"dynamiccl/state"
)

// StatusReport is what `status --json` writes.
type StatusReport struct {
	control.Status
	Recent []control.Finding `json:"recent_findings"`
}

// Status writes the daemon as a whole.
func Status(w io.Writer, r StatusReport, now time.Time) error {
	st := r.Status
	t := columns(w)
	fmt.Fprintf(t, "daemon\tpid %d, version %s, started %s (%s)\n", st.PID, st.Version, instant(st.StartedAt), units.Ago(st.StartedAt, now))
	fmt.Fprintf(t, "directory\t%s\n", st.Dir)
	fmt.Fprintf(t, "store\t%s: %s\n", st.StorePath, st.StoreState)
	if st.StoreMoved != "" {
		fmt.Fprintf(t, "\ta damaged one was moved to %s, and this one begun\n", st.StoreMoved)
	}
	if st.TraceError != "" {
		fmt.Fprintf(t, "trace\tended early: %s\n", st.TraceError)
	}
	learner := st.Learner
	if !st.Explore {
		learner += ", exploration off"
	}
	fmt.Fprintf(t, "learner\t%s\n", learner)
	fmt.Fprintf(t, "samples\t%d read, %d dropped by full rings, %d that match no call\n", st.Samples, st.Dropped, st.Unjoined)
	fmt.Fprintf(t, "calls\t%d decided, %d plans published, %d actions that NCCL ruled out\n", st.Decisions, st.Publications, st.Ignored)
	if g := st.Graphs; g != nil {
		fmt.Fprintf(t, "graphs\t%d replays seen of %s, %d changed\n", g.Replays, units.Count(g.Choices, "choice"), g.Changed)
	}
	if l := st.Links; l != nil {
		fmt.Fprintf(t, "links\t%d trips seen over %s of GIN, %d changed: `dynamiccld links`\n", l.Trips, units.Count(l.Links, "way"), l.Changed)
	}
	fmt.Fprintf(t, "findings\t%s\n", counts(st.FindingCounts))
	if err := t.Flush(); err != nil {
		return err
	}
	for _, o := range st.Others {
		fmt.Fprintf(w, "\nrank processes that are not tuned: %d; their plugin has shared-memory layout %d and this daemon %d: restart the daemon from the release of the plugin\n",
			o.Processes, o.Layout, st.Layout)
	}
	if len(st.Comms) > 0 || len(st.Others) == 0 {
		if err := comms(w, st.Comms, st.Decisions+st.Samples > 0); err != nil {
			return err
		}
	}
	if len(r.Recent) == 0 {
		return nil
	}
	fmt.Fprintf(w, "\nlast findings\n")
	for _, f := range r.Recent {
		fmt.Fprintf(w, "  %s  %s  %s %s: %s: %s\n", instant(f.At), f.Comm, f.Collective, state.FormatBytes(f.MinBytes), f.Diagnosis, f.Text)
	}
	return nil
}

// comms writes those that live; left says that there were others before.
func comms(w io.Writer, all []control.CommStatus, left bool) error {
	if len(all) == 0 && left {
		_, err := fmt.Fprintln(w, "\nno communicators: those that were here have left; `dynamiccld table --store FILE` shows what they left in the store")
		return err
	}
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "\nno communicators: no rank with the plugin has started in this directory; `dynamiccld doctor` says what is missing")
		return err
	}
	fmt.Fprintln(w)
	t := columns(w)
	fmt.Fprintln(t, "communicator\tranks\tnodes\ttransport\tNCCL\tepoch\tplan\tprocesses\tstate")
	for _, c := range all {
		version := c.NCCLVersion
		if version == "" {
			version = "-"
		}
		fmt.Fprintf(t, "%s\t%d/%d\t%d\t%s\t%s\t%d\t%d\t%s\t%s\n", c.ID, c.RanksJoined, c.Ranks, c.Nodes, transport(c), version, c.Epoch, c.PlanVersion, pids(c.Processes), active(c))
	}
	return t.Flush()
}

func transport(c control.CommStatus) string {
	switch {
	case c.Transport == "":
		return "-"
	case c.NICs > 0:
		return c.Transport + ", " + units.Count(c.NICs, "NIC")
	}
	return c.Transport
}

func active(c control.CommStatus) string {
	text := activeText(c)
	if c.GIN != "" {
		text += "; GIN " + c.GIN
	}
	if c.Trouble != "" {
		text += "; " + c.Trouble
	}
	return text
}

func activeText(c control.CommStatus) string {
	switch {
	case c.Follows:
		return "follows: " + c.Why
	case c.Active && c.Why == "":
		return "tuned"
	case c.Active:
		return "tuned: " + c.Why
	case c.Why == "":
		return "passes through"
	}
	return "passes through: " + c.Why
}

// pids keeps a line readable with 64 ranks.
func pids(all []int) string {
	const show = 4
	var parts []string
	for i, p := range all {
		if i == show {
			parts = append(parts, fmt.Sprintf("+%d", len(all)-show))
			break
		}
		parts = append(parts, fmt.Sprint(p))
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ",")
}

func counts(m map[string]uint64) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if m[k] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", m[k], k))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
