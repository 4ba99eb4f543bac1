package calibrate

import (
	"context"
	"slices"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/forced"
	"dynamiccl/tuner"
)

// askNames asks for everything that NCCL has a name for on registered buffers, by a call of each, before there are learners: many names
// are refused (no multicast, no TMA), or bring about something else, and a learner that tried these would rest before it has found
// what runs. And a call takes a tenth of what a point takes.
func (t *tuning) askNames(ctx context.Context) error {
	for left := true; left; {
		left = false
		for some := range slices.Chunk(t.buckets, atOnce) {
			asked, err := t.askName(ctx, some)
			if err != nil {
				return err
			}
			left = left || asked
		}
	}
	return nil
}

// askName asks for the next name of each bucket. asked: any has one.
func (t *tuning) askName(ctx context.Context, some []*bucket) (asked bool, err error) {
	var entries []forced.Entry
	var of []*bucket
	for _, b := range some {
		names := b.names()
		for b.named < len(names) && b.barred[names[b.named]] != nil {
			b.named++
		}
		if b.us > 0 && b.named < len(names) {
			entries, of = append(entries, forced.Entry{Bucket: b.Bucket, Action: names[b.named]}), append(of, b)
		}
	}
	if len(of) == 0 {
		return false, nil
	}
	version, err := t.ranks.Settle(ctx, entries)
	if err != nil {
		return false, err
	}
	for i, b := range of {
		if !t.o.Now().Before(t.ends) {
			return false, errTime
		}
		if _, err := t.ranks.Call(ctx, b.name, b.bytes, 1); err != nil {
			t.unnameable(b.Collective, entries[i].Action, err)
			return false, point(b, entries[i].Action, err)
		}
	}
	not, err := t.ranks.Ran(ctx, version, entries)
	if err != nil {
		return false, err
	}
	for i, b := range of {
		b.named++
		if why := not[b.Bucket]; why != nil {
			b.barred[entries[i].Action] = why
		}
	}
	return true, nil
}

// untried gives a name that was not measured yet. Policies know nothing of names, which no table has that they were trained on: in small
// calibrations they rest after three or four choices, and a set has no more than a dozen.
func (b *bucket) untried() (a actions.Action, ok bool) {
	if !b.Collective.Registered() {
		return a, false
	}
	for _, a := range b.set[1:] {
		if !a.Ours() && b.barred[a] == nil && len(b.points[a]) == 0 {
			return a, true
		}
	}
	return a, false
}

// unnameable leaves a name out at all sizes: ranks that do not survive it at one are not started again for each.
func (t *tuning) unnameable(of actions.Collective, a actions.Action, why error) {
	for _, b := range t.buckets {
		if b.Collective == of {
			b.barred[a] = why
		}
	}
}

// names are the choices of a bucket on registered buffers that are NCCL's.
func (b *bucket) names() []actions.Action {
	return slices.DeleteFunc(tuner.ActionSet(b.Bucket, tuner.MarkSet(b.marks), 0)[1:], func(a actions.Action) bool { return a.Ours() })
}
