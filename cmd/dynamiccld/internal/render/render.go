package render

import (
	"encoding/json"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/units"
	"dynamiccl/state"
)

// JSON writes v for programs.
func JSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func columns(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

func shape(ranks, nodes int, transport string) string {
	s := units.Count(ranks, "rank") + ", " + units.Count(nodes, "node")
	if transport != "" {
		s += ", " + transport
	}
	return s
}

// owner says what a bucket belongs to: a live communicator, or a key of a store file.
func owner(b control.Bucket) string {
	var parts []string
	if b.Comm != "" {
		parts = append(parts, "communicator "+b.Comm)
	}
	for _, p := range []struct{ name, value string }{{"machine", b.Machine}, {"GPU", b.GPUArch}} {
		if p.value != "" {
			parts = append(parts, p.name+" "+p.value)
		}
	}
	parts = append(parts, shape(b.Ranks, b.Nodes, b.Transport))
	if b.NCCLVersion != "" {
		parts = append(parts, "NCCL "+b.NCCLVersion)
	}
	return strings.Join(parts, ", ")
}

func instant(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

func size(b control.Bucket) string { return state.FormatBytes(b.MinBytes) }
