package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"dynamiccl/cmd/internal/tracefile"
	"dynamiccl/tuner/tunersim"
)

// source is one table with the name that card and messages give it.
type source struct {
	name  string // of the file without .csv, or of the part of a store
	file  string
	table *tunersim.Table
}

// traces reads the tables that patterns name, each once, in the order of patterns and names: the order is part of what
// the outcome depends on.
func traces(patterns []string) ([]source, error) {
	files, err := tracefile.Find(patterns)
	if err != nil {
		return nil, usage{fmt.Errorf("--traces: %w", err)}
	}
	var all []source
	for _, file := range files {
		table, err := tracefile.Read(file)
		if err != nil {
			return nil, err
		}
		all = append(all, source{tracefile.Stem(file), file, table})
	}
	return all, nil
}

// label is what --hold-out looks into, beside the file's name.
func (s source) label() string {
	return strings.ToLower(s.table.Machine + "/" + s.table.Shape.Transport + "/" + s.table.Condition)
}

// split takes the tables out that a name of --hold-out matches. A name that matches nothing is a mistake that would
// otherwise show as too good a result.
func split(all []source, names []string) (kept, held []source, err error) {
	matched := make([]bool, len(names))
	for _, s := range all {
		out := false
		for i, name := range names {
			part := strings.ToLower(name)
			if part != "" && (strings.Contains(s.label(), part) || strings.Contains(strings.ToLower(filepath.Base(s.file)), part)) {
				out, matched[i] = true, true
			}
		}
		if out {
			held = append(held, s)
		} else {
			kept = append(kept, s)
		}
	}
	if i := slices.Index(matched, false); i >= 0 {
		var have []string
		for _, s := range all {
			have = append(have, s.label()+" "+filepath.Base(s.file))
		}
		return nil, nil, usage{fmt.Errorf("--hold-out %q matches no table; there are: %s", names[i], strings.Join(have, "; "))}
	}
	return kept, held, nil
}

func names(all []source) []string {
	out := []string{}
	for _, s := range all {
		out = append(out, s.name)
	}
	return out
}

func tables(all []source) []*tunersim.Table {
	var out []*tunersim.Table
	for _, s := range all {
		out = append(out, s.table)
	}
	return out
}

// sources are all tables that the command line names.
func (p *program) sources(o options) ([]source, error) {
	all, err := traces(o.traces)
	if err != nil || o.store == "" {
		return all, err
	}
	learned, err := experience(o.store, func(text string) { fmt.Fprintf(p.stderr, "dynamiccld train: %s\n", text) })
	return append(all, learned...), err
}
