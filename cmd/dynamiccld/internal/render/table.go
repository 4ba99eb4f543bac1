package render

import (
	"fmt"
	"io"
	"slices"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/control"
)

// Table writes one decision matrix, collective by size, for each communicator or store key.
func Table(w io.Writer, buckets []control.Bucket) error {
	exploring := false
	for i, group := range Groups(buckets) {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, owner(group[0]))
		if err := matrix(w, group); err != nil {
			return err
		}
		exploring = exploring || slices.ContainsFunc(group, func(b control.Bucket) bool { return b.Exploring })
	}
	if exploring {
		fmt.Fprintln(w, "\n* still trying others")
	}
	return nil
}

// Groups splits buckets by what they belong to, in the order of first appearance.
func Groups(buckets []control.Bucket) [][]control.Bucket {
	var groups [][]control.Bucket
	index := map[string]int{}
	for _, b := range buckets {
		key := owner(b)
		i, ok := index[key]
		if !ok {
			i = len(groups)
			index[key] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], b)
	}
	return groups
}

func matrix(w io.Writer, group []control.Bucket) error {
	cells := map[actions.Collective]map[uint64]control.Bucket{}
	var sizes []uint64
	for _, b := range group {
		c := b.Bucket.Collective
		if cells[c] == nil {
			cells[c] = map[uint64]control.Bucket{}
		}
		cells[c][b.MinBytes] = b
		sizes = append(sizes, b.MinBytes)
	}
	slices.Sort(sizes)
	sizes = slices.Compact(sizes)

	t := columns(w)
	fmt.Fprint(t, "  size")
	for c := range actions.Collective(actions.NumCollectives) {
		if cells[c] != nil {
			fmt.Fprintf(t, "\t%s", c)
		}
	}
	fmt.Fprintln(t)
	for _, n := range sizes {
		fmt.Fprintf(t, "  %s", size(control.Bucket{MinBytes: n}))
		for c := range actions.Collective(actions.NumCollectives) {
			if cells[c] == nil {
				continue
			}
			b, ok := cells[c][n]
			fmt.Fprintf(t, "\t%s", cell(b, ok))
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

func cell(b control.Bucket, ok bool) string {
	if !ok {
		return "-"
	}
	s := b.Choice
	if s != "default" && b.SpeedUp != 1 {
		s += fmt.Sprintf(" %.2fx", b.SpeedUp)
	}
	if b.Exploring {
		s += " *"
	}
	return s
}
