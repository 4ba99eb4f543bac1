package storefile

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/state"
	"dynamiccl/tuner"
	"dynamiccl/tuner/store"
)

// Read gives every learned choice of the file, by shape, collective and size. The file is not changed. bad are records
// that cannot be read; the others are good. now is the wall clock.
func Read(path string, now time.Time) (buckets []control.Bucket, bad []string, err error) {
	s, err := store.Open(path, store.Options{ReadOnly: true, OnBad: func(key string, err error) {
		bad = append(bad, fmt.Sprintf("record %q is passed over: %v", key, err))
	}})
	if err != nil {
		return nil, nil, err
	}
	defer s.Close()
	err = s.All(func(l tuner.Learned) error {
		buckets = append(buckets, control.FromLearned(l, now))
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	slices.SortStableFunc(buckets, func(a, b control.Bucket) int {
		return cmp.Or(cmp.Compare(a.Machine, b.Machine), cmp.Compare(a.GPUArch, b.GPUArch), cmp.Compare(a.NCCLVersion, b.NCCLVersion),
			cmp.Compare(a.Nodes, b.Nodes), cmp.Compare(a.Ranks, b.Ranks), cmp.Compare(a.Transport, b.Transport),
			cmp.Compare(a.Bucket.Collective, b.Bucket.Collective), cmp.Compare(a.MinBytes, b.MinBytes))
	})
	return buckets, bad, nil
}

// Target is what imported rules are filed under.
type Target struct {
	Machine     string
	GPUArch     string
	NCCLVersion int
}

// importedGain is the advantage over NCCL's default that an imported rule is believed to have until it is measured: a
// reason to try it, and too little to keep it.
const importedGain = 0.9

// Import writes rules as starting points for communicators of the shapes, in one transaction. It gives how many choices
// that are. The daemon keeps a choice only once it is measured better than NCCL's default.
func Import(path string, rules []actions.Rule, target Target, shapes []state.Shape) (n int, err error) {
	var batch []tuner.Learned
	for _, shape := range shapes {
		choices, _ := actions.ChoicesFor(rules, shape.Nodes, shape.Ranks)
		for _, c := range choices {
			batch = append(batch, Starting(c, target, shape))
		}
	}
	s, err := store.Open(path, store.Options{})
	if err != nil {
		return 0, err
	}
	if err := s.Put(batch); err != nil {
		s.Close()
		return 0, err
	}
	return len(batch), s.Close()
}

// Starting is a choice without measurements: Calls is 0, and of the costs only the ratio means anything.
func Starting(c actions.BucketChoice, t Target, shape state.Shape) tuner.Learned {
	const defaultNs = 1e6
	return tuner.Learned{
		Key: tuner.Key{Machine: t.Machine, GPUArch: t.GPUArch, NCCLVersion: t.NCCLVersion, Shape: shape,
			Bucket: state.Bucket{Collective: c.Collective, Log2Bytes: c.Log2Bytes}},
		Action: c.Action, CostNs: importedGain * defaultNs, Default: defaultNs,
		Evidence: map[actions.Action]tuner.Estimate{
			actions.Default: {N: 1, MeanNs: defaultNs},
			c.Action:        {N: 1, MeanNs: importedGain * defaultNs},
		},
	}
}
