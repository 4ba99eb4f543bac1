package calibrate

import (
	"errors"
	"slices"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/forced"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// What hung its ranks or gave wrong elements here would do so in a program: the store says so at once, for whoever calibrates may end
// before anything of the bucket is settled, and daemons leave it out. A later calibration in which it runs takes that back.

// refuse has the store say it.
func (r *runner) refuse(b *bucket, a actions.Action, key tuner.Key) error {
	stored, err := r.stored(key)
	if err != nil {
		return err
	}
	l, ok := stored[b.Bucket]
	if !ok {
		if b.us == 0 {
			return nil // nothing was measured, so nothing was in force
		}
		key.Bucket = b.Bucket
		ns := b.us * 1e3
		l = tuner.Learned{Key: key, Action: actions.Default, CostNs: ns, Default: ns, Calls: 1, SinceNs: state.Ns(r.o.Now().UnixNano()),
			Evidence: map[actions.Action]tuner.Estimate{actions.Default: {N: 1, MeanNs: ns}}}
	}
	return r.store.Put([]tuner.Learned{l.Refusing(a)})
}

// stored is what the store has of a target, by bucket.
func (r *runner) stored(key tuner.Key) (map[state.Bucket]tuner.Learned, error) {
	all, err := r.store.Load(key.Machine, key.GPUArch, key.NCCLVersion, key.Shape)
	by := make(map[state.Bucket]tuner.Learned, len(all))
	for _, l := range all {
		by[l.Key.Bucket] = l
	}
	return by, err
}

// refused are those that failed now, and earlier ones that have not run now.
func (b *bucket) refused(earlier []actions.Action) (all []actions.Action) {
	for a, why := range b.barred {
		if fault := new(forced.Fault); errors.As(why, &fault) && fault.Ends() {
			all = append(all, a)
		}
	}
	for _, a := range earlier {
		if len(b.points[a]) == 0 && !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	return all
}
