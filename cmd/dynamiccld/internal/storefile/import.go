package storefile

import (
	"cmp"
	"errors"
	"slices"

	"dynamiccl/actions"
	"dynamiccl/state"
	"dynamiccl/tuner"
	"dynamiccl/tuner/store"
)

// Target is what imported rules are filed under.
type Target struct {
	Machine     string
	GPUArch     string
	NCCLVersion int
}

// Import is what comes from outside, for communicators of some shapes.
type Import struct {
	Rules   []actions.Rule
	Refused []actions.Refusal
	Target  Target
	Shapes  []state.Shape
	Replace bool // also what was measured on this machine
}

// What became of a rule's choice.
const (
	Added    = "added"
	Kept     = "kept" // what the store has
	Replaced = "replaced"
	Refused  = "refused" // it hung its ranks or gave wrong elements, so what the store has stays
)

// Change is what became of one size of a shape.
type Change struct {
	Key      tuner.Key
	Outcome  string // "": no rule is for it
	Refusals int    // choices that were not refused there before
}

// importedGain is the advantage over NCCL's default that an imported rule is believed to have until it is measured: a
// reason to try it, and too little to keep it.
const importedGain = 0.9

// Into writes rules as starting points into a store, in one transaction. The daemon keeps a choice only once it is measured better than
// NCCL's default. What was measured here stays, unless Replace says otherwise; what is refused, here or there, is refused.
func (im Import) Into(path string) (changes []Change, err error) {
	s, err := store.Open(path, store.Options{})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err = errors.Join(err, s.Close()); err != nil {
			changes = nil
		}
	}()
	has := map[tuner.Key][]tuner.Learned{} // over all transports, under the key without
	if err := s.All(func(l tuner.Learned) error {
		k := l.Key
		k.Shape.Transport = ""
		has[k] = append(has[k], l)
		return nil
	}); err != nil {
		return nil, err
	}
	var batch []tuner.Learned
	for _, shape := range im.Shapes {
		for _, n := range im.news(shape) {
			own := has[n.Key]
			if !slices.ContainsFunc(own, func(l tuner.Learned) bool { return l.Key == n.Key }) {
				own = append(own, tuner.Learned{Key: n.Key}) // for every transport of which nothing is known
			}
			for _, old := range own {
				l, change := im.merge(old, n)
				batch, changes = append(batch, l), append(changes, change)
			}
		}
	}
	return changes, s.Put(slices.DeleteFunc(batch, func(l tuner.Learned) bool { return l.CostNs == 0 }))
}

// news are the choices and refusals of a shape, by collective and size.
func (im Import) news(shape state.Shape) (all []tuner.Learned) {
	choices, _ := actions.ChoicesFor(im.Rules, shape.Nodes, shape.Ranks)
	for _, c := range choices {
		all = append(all, Starting(c, im.Target, shape))
	}
	for _, r := range RefusedBy(im.Refused, im.Target, shape) {
		i := slices.IndexFunc(all, func(l tuner.Learned) bool { return l.Key == r.Key })
		if i < 0 {
			all = append(all, r)
		} else {
			all[i].Refused = r.Refused
		}
	}
	slices.SortStableFunc(all, func(a, b tuner.Learned) int {
		return cmp.Or(cmp.Compare(a.Key.Bucket.Collective, b.Key.Bucket.Collective), cmp.Compare(a.Key.Bucket.Log2Bytes, b.Key.Bucket.Log2Bytes))
	})
	return all
}

// merge gives what the store has of a key from now on; a cost of 0 means that it has and gets nothing.
func (im Import) merge(old, n tuner.Learned) (l tuner.Learned, c Change) {
	none, measured := old.CostNs == 0, old.Calls > 0
	c.Key, l = old.Key, old
	refused := slices.Concat(old.Refused, n.Refused)
	choice := len(n.Evidence) > 0
	taken := choice && !slices.Contains(refused, n.Action) && (!measured || im.Replace)
	switch {
	case !choice:
	case slices.Contains(refused, n.Action):
		c.Outcome = Refused
	case none || !measured && len(old.Evidence) == 0: // refusals at most
		c.Outcome = Added
	case !taken || l.Action == n.Action && !measured:
		c.Outcome = Kept
	default:
		c.Outcome = Replaced
	}
	switch {
	case taken:
		l = n
		l.Key, l.Refused = old.Key, nil
	case none && len(refused) > 0:
		l = tuner.Refusal(old.Key)
	}
	if l.CostNs > 0 {
		l = l.Refusing(refused...)
		c.Refusals = len(l.Refused) - len(old.Refused)
	}
	return l, c
}

// Starting is a choice without measurements: Calls is 0, and of the costs only the ratio means anything.
func Starting(c actions.BucketChoice, t Target, shape state.Shape) tuner.Learned {
	const defaultNs = 1e6
	return tuner.Learned{
		Key:    t.key(shape, state.Bucket{Collective: c.Collective, Log2Bytes: c.Log2Bytes}),
		Action: c.Action, CostNs: importedGain * defaultNs, Default: defaultNs,
		Evidence: map[actions.Action]tuner.Estimate{
			actions.Default: {N: 1, MeanNs: defaultNs},
			c.Action:        {N: 1, MeanNs: importedGain * defaultNs},
		},
	}
}

// RefusedBy is what a file refuses of a shape, by collective and size.
func RefusedBy(file []actions.Refusal, t Target, shape state.Shape) (all []tuner.Learned) {
	for _, r := range file {
		if r.Nodes != shape.Nodes || r.Ranks != shape.Ranks {
			continue
		}
		key := t.key(shape, state.Bucket{Collective: r.Collective, Log2Bytes: r.Log2Bytes})
		i := slices.IndexFunc(all, func(l tuner.Learned) bool { return l.Key == key })
		if i < 0 {
			all = append(all, tuner.Refusal(key, r.Action))
		} else {
			all[i] = all[i].Refusing(r.Action)
		}
	}
	return all
}

func (t Target) key(shape state.Shape, b state.Bucket) tuner.Key {
	return tuner.Key{Machine: t.Machine, GPUArch: t.GPUArch, NCCLVersion: t.NCCLVersion, Shape: shape, Bucket: b}
}
