package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"dynamiccl/actions"
	"dynamiccl/state"
	"dynamiccl/tuner"
	"dynamiccl/tuner/store"
	"dynamiccl/tuner/tunersim"
)

// leastCalls is how often a daemon must have measured an action before its cost is something to learn: one delayed call
// would otherwise become the truth of a table. Imported choices, whose costs are invented, are below it.
const leastCalls = 3

// machine is what one table of a store is about.
type machine struct {
	name, arch string
	nccl       int
	shape      state.Shape
}

func (m machine) compare(o machine) int {
	return cmp.Or(cmp.Compare(m.name, o.name), cmp.Compare(m.arch, o.arch), cmp.Compare(m.nccl, o.nccl), cmp.Compare(m.shape.Nodes, o.shape.Nodes),
		cmp.Compare(m.shape.Ranks, o.shape.Ranks), cmp.Compare(m.shape.Transport, o.shape.Transport))
}

// experience turns what a daemon learned into tables, one for each machine, NCCL version and communicator shape. The
// store is opened read-only. warn hears of records that cannot be read.
func experience(path string, warn func(string)) ([]source, error) {
	s, err := store.Open(path, store.Options{ReadOnly: true, OnBad: func(key string, err error) {
		warn(fmt.Sprintf("record %q of %s is passed over: %v", key, path, err))
	}})
	switch {
	case errors.Is(err, store.ErrLocked):
		return nil, fmt.Errorf("a daemon is using %s: stop it for the second that reading takes, or train without --store: %w", path, err)
	case err != nil:
		return nil, err
	}
	rows := map[machine][]tunersim.Row{}
	err = s.All(func(l tuner.Learned) error {
		m := machine{l.Key.Machine, l.Key.GPUArch, l.Key.NCCLVersion, l.Key.Shape}
		rows[m] = append(rows[m], measured(l)...)
		return nil
	})
	if err = errors.Join(err, s.Close()); err != nil {
		return nil, err
	}
	var all []source
	for _, m := range slices.SortedFunc(maps.Keys(rows), machine.compare) {
		if len(rows[m]) == 0 {
			continue
		}
		title := cmp.Or(m.name, "unknown machine")
		if m.arch != "" {
			title += " " + m.arch
		}
		version := ncclVersion(m.nccl)
		table, err := tunersim.NewTable(title, version, m.shape, 0, "experience", rows[m])
		if err != nil {
			return nil, fmt.Errorf("%s: experience of %s: %w", path, title, err)
		}
		all = append(all, source{fmt.Sprintf("experience of %s, NCCL %s, %s", title, version, m.shape), path, table})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s holds no bucket with the default and another choice measured %d times each: let the daemon explore longer, or train without --store",
			path, leastCalls)
	}
	return all, nil
}

// measured gives the rows of one bucket; none when there is nothing to compare.
func measured(l tuner.Learned) []tunersim.Row {
	var rows []tunersim.Row
	names := slices.SortedFunc(maps.Keys(l.Evidence), func(a, b actions.Action) int { return cmp.Compare(a.String(), b.String()) })
	for _, a := range names {
		if e := l.Evidence[a]; e.N >= leastCalls {
			rows = append(rows, tunersim.Row{Collective: l.Key.Bucket.Collective, Bytes: 1 << l.Key.Bucket.Log2Bytes, Action: a, SignalNs: e.MeanNs})
		}
	}
	if len(rows) < 2 || l.Evidence[actions.Default].N < leastCalls {
		return nil
	}
	return rows
}

// ncclVersion writes NCCL_VERSION's code, major*10000 + minor*100 + patch, as tables do.
func ncclVersion(code int) string {
	if code <= 0 {
		return "unknown"
	}
	return fmt.Sprintf("%d.%d.%d", code/10000, code/100%100, code%100)
}
