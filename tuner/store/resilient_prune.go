package store

import (
	"cmp"
	"slices"
	"time"

	"dynamiccl/state"
	"dynamiccl/tuner"

	"go.etcd.io/bbolt"
)

// seenEvery is how much later a communicator must come to be written down as seen again: not every start of a job is worth a
// write of all that is known for it.
const seenEvery = 24 * time.Hour

// Seen says that a communicator of the shape is there: what is known for it is what is forgotten last.
func (r *Resilient) Seen(machine, arch string, ncclVersion int, shape state.Shape) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	for _, rec := range r.groups[group{machine, arch, ncclVersion, shape}] {
		if l := rec.learned; now-l.SeenNs >= state.Ns(seenEvery) || l.SeenNs > now { // the host's clock was set back since
			l.SeenNs = now
			r.keep(l, true)
		}
	}
}

// makeRoom forgets what is known for the shape that has not been seen for longest, so that a record of g can come; false: g is all
// that there is. mu is held.
func (r *Resilient) makeRoom(g group) bool {
	var oldest group
	oldestNs, found := state.Ns(0), false
	for other, records := range r.groups {
		if other == g {
			continue
		}
		ns := state.Ns(0)
		for _, rec := range records {
			ns = max(ns, rec.learned.SeenNs)
		}
		if !found || ns < oldestNs {
			oldest, oldestNs, found = other, ns, true
		}
	}
	for _, rec := range r.groups[oldest] {
		r.forget(rec.learned.Key)
	}
	r.records -= len(r.groups[oldest])
	delete(r.groups, oldest)
	return found
}

// forget has the next Flush delete a record that memory has no more; mu is held. More than memory has room for come only while the file
// cannot be written: merge finds them again.
func (r *Resilient) forget(k tuner.Key) {
	delete(r.dirty, k)
	if r.path != "" && len(r.forgotten) < r.limit {
		r.forgotten[k] = true
	}
}

// newestFirst orders what a file holds, so that what does not fit is what was not seen for longest.
func newestFirst(all []tuner.Learned) {
	slices.SortStableFunc(all, func(a, b tuner.Learned) int { return cmp.Compare(b.SeenNs, a.SeenNs) })
}

// deleteForgotten deletes from the file. A record that is learned again meanwhile is written behind it.
func (r *Resilient) deleteForgotten() error {
	r.mu.Lock()
	var keys []tuner.Key
	for k := range r.forgotten {
		keys = append(keys, k)
	}
	r.mu.Unlock()
	if len(keys) == 0 {
		return nil
	}
	if err := r.store.Delete(keys); err != nil {
		return err
	}
	r.mu.Lock()
	for _, k := range keys {
		delete(r.forgotten, k)
	}
	r.mu.Unlock()
	r.log.Info("the store was full: choices of communicators that had not been there for longest were deleted", "records", len(keys))
	return nil
}

// Delete takes records out, in one transaction. Those that are not there are no error.
func (s *Store) Delete(keys []tuner.Key) error {
	return wrap("writing", s.path, s.guard(func() error {
		return s.db.Update(func(tx *bbolt.Tx) error {
			b := tx.Bucket(learnedBucket)
			if b == nil {
				return corrupt("bucket %q is gone", learnedBucket)
			}
			for _, k := range keys {
				key, err := encodeKey(k)
				if err != nil {
					return err
				}
				if err := b.Delete(key); err != nil {
					return err
				}
			}
			return nil
		})
	}))
}
