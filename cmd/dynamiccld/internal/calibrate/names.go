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
		if names := b.names(); b.us > 0 && b.named < len(names) {
			entries, of = append(entries, forced.Entry{Bucket: b.Bucket, Action: names[b.named]}), append(of, b)
			b.named++ // one that its ranks do not survive is not asked for again
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
			return false, point(b, entries[i].Action, err)
		}
	}
	not, err := t.ranks.Ran(ctx, version, entries)
	if err != nil {
		return false, err
	}
	for i, b := range of {
		if why := not[b.Bucket]; why != nil {
			b.barred[entries[i].Action] = why
		}
	}
	return true, nil
}

// names are the choices of a bucket on registered buffers that are NCCL's.
func (b *bucket) names() []actions.Action {
	return slices.DeleteFunc(tuner.ActionSet(b.Bucket, tuner.MarkSet(b.marks), 0)[1:], func(a actions.Action) bool { return a.Ours() })
}
