package storefile

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
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
