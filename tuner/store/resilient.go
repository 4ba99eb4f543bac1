package store

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"dynamiccl/state"
	"dynamiccl/tuner"
)

const (
	firstRetry    = time.Second
	longestRetry  = time.Minute
	maxRecords    = 1 << 15 // hundreds of communicator shapes with all buckets that a program uses; a file of some 50 MiB
	recordsAtOnce = 1024    // of one transaction
)

// Resilient is a store that cannot fail its caller: everything is in memory, Put and Load never touch the disk, and
// Flush, called now and then by one goroutine of the daemon, writes behind. What is wrong with the file is said once
// when it begins and once when it ends; meanwhile Flush tries again with growing pauses. A corrupt file is moved aside
// to NAME.corrupt-<n> and a new one begun from memory.
type Resilient struct {
	path    string
	options Options
	log     *slog.Logger
	limit   int // of records

	mu      sync.Mutex // never held while the disk works
	groups  map[group]map[state.Bucket]*record
	records int
	dirty   map[tuner.Key]*record // not yet written; a later Put of the same key takes the place of an earlier one
	lost    int                   // records of one shape that do not fit
	// forgotten is what memory has no more and the file may still have.
	forgotten map[tuner.Key]bool
	refused   int // records that Put refused
	failing   error
	movedTo   string // the newest copy of a corrupt file

	io      sync.Mutex // the file: held by Flush and Close
	store   *Store
	retryAt time.Time
	pause   time.Duration
	closed  bool
	hasRead bool // readOnce is done
}

type group struct {
	machine, arch string
	ncclVersion   int
	shape         state.Shape
}

type record struct {
	learned tuner.Learned // never changed in place: a Put brings a new one
	changes uint64        // Puts since the start, so that Flush knows whether what it wrote is still the newest
}

func groupOf(k tuner.Key) group { return group{k.Machine, k.GPUArch, k.NCCLVersion, k.Shape} }

// NewResilient opens the file for the first time, waiting at most Options.LockTimeout for another process. It always
// gives a usable store. With path "" it keeps to memory and says nothing.
func NewResilient(path string, o Options, log *slog.Logger) *Resilient {
	r := &Resilient{path: path, options: o, log: log, limit: maxRecords,
		groups: map[group]map[state.Bucket]*record{}, dirty: map[tuner.Key]*record{}, forgotten: map[tuner.Key]bool{}}
	if r.options.Now == nil {
		r.options.Now = time.Now
	}
	r.options.ReadOnly, r.options.ReplaceCorrupt = false, true
	var bad int
	r.options.OnBad = func(key string, err error) {
		if bad++; bad == 1 {
			log.Warn("a learned choice in the store cannot be read and is passed over; others like it are only counted",
				"key", key, "error", err)
		}
		if o.OnBad != nil {
			o.OnBad(key, err)
		}
	}
	if path != "" {
		r.io.Lock()
		defer r.io.Unlock()
		if err := r.open(); err != nil {
			r.failed(err)
		}
	}
	return r
}

// Put takes records in. It only touches memory. Records that make no sense are refused, counted, and named in the error. What
// an earlier record of the key refuses stays refused: who learns may have begun before that was known.
func (r *Resilient) Put(batch []tuner.Learned) error {
	var firstErr error
	refused := 0
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range batch {
		l, err := normalise(l) // also a copy: the caller's maps change under its next Step
		if err == nil {
			_, err = encodeKey(l.Key)
		}
		if err != nil {
			refused++
			firstErr = cmp.Or(firstErr, err)
			continue
		}
		if l.SeenNs == 0 {
			l.SeenNs = r.now()
		}
		if known := r.groups[groupOf(l.Key)][l.Key.Bucket]; known != nil {
			l = l.Refusing(known.learned.Refused...)
		}
		r.keep(l, true)
	}
	r.refused += refused
	return wrap("keeping", r.path, firstErr)
}

// now counts from 1970, as all instants of records do; 0 where the host's clock has no such time.
func (r *Resilient) now() state.Ns { return max(0, state.Ns(r.options.Now().UnixNano())) }

// keep puts a record into memory; mu is held.
func (r *Resilient) keep(l tuner.Learned, dirty bool) {
	g := groupOf(l.Key)
	rec := r.groups[g][l.Key.Bucket]
	if rec == nil {
		if r.records >= r.limit && !r.makeRoom(g) {
			r.lost++
			return
		}
		r.records++
		delete(r.forgotten, l.Key)
		rec = &record{}
		if r.groups[g] == nil {
			r.groups[g] = map[state.Bucket]*record{}
		}
		r.groups[g][l.Key.Bucket] = rec
	}
	rec.learned = l
	rec.changes++
	if dirty && r.path != "" {
		r.dirty[l.Key] = rec
	}
}

// Load is Store.Load, from memory.
func (r *Resilient) Load(machine, arch string, ncclVersion int, shape state.Shape) []tuner.Learned {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []tuner.Learned
	for _, rec := range r.groups[group{machine, arch, ncclVersion, shape}] {
		out = append(out, clone(rec.learned))
	}
	slices.SortFunc(out, byBucket)
	return out
}

func clone(l tuner.Learned) tuner.Learned {
	l.Evidence, l.Refused = maps.Clone(l.Evidence), slices.Clone(l.Refused)
	return l
}

// Versions is Store.Versions, from memory.
func (r *Resilient) Versions(machine, arch string, ncclVersion int, shape state.Shape) []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []int
	for g := range r.groups {
		if g.ncclVersion != ncclVersion && g == (group{machine, arch, g.ncclVersion, shape}) {
			out = append(out, g.ncclVersion)
		}
	}
	slices.Sort(out)
	return out
}

// All calls fn for a copy of every record, in no particular order, until fn gives an error, which it returns.
func (r *Resilient) All(fn func(tuner.Learned) error) error {
	r.mu.Lock()
	all := make([]tuner.Learned, 0, r.records)
	for _, g := range r.groups {
		for _, rec := range g {
			all = append(all, clone(rec.learned))
		}
	}
	r.mu.Unlock()
	for _, l := range all {
		if err := fn(l); err != nil {
			return err
		}
	}
	return nil
}

// ResilientStats is what status and metrics show.
type ResilientStats struct {
	Records int
	Dirty   int    // in memory, not yet in the file
	Refused int    // made no sense
	Lost    int    // of one shape, and did not fit
	Failing error  // what is wrong with the file now; nil: nothing
	MovedTo string // where a file that was corrupt lies since it was opened; "": none was
}

// Stats never waits for the disk.
func (r *Resilient) Stats() ResilientStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return ResilientStats{Records: r.records, Dirty: len(r.dirty), Refused: r.refused, Lost: r.lost, Failing: r.failing, MovedTo: r.movedTo}
}

// snapshot takes some dirty records and their change counts.
func (r *Resilient) snapshot() (batch []tuner.Learned, recs []*record, changes []uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rec := range r.dirty {
		batch, recs, changes = append(batch, rec.learned), append(recs, rec), append(changes, rec.changes)
		if len(batch) == recordsAtOnce {
			break
		}
	}
	return batch, recs, changes
}

// written marks records as clean unless a newer Put came while they were on their way, of the same record or of one that took its place.
func (r *Resilient) written(recs []*record, changes []uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, rec := range recs {
		if k := rec.learned.Key; rec.changes == changes[i] && r.dirty[k] == rec {
			delete(r.dirty, k)
		}
	}
}

// merge takes in what the file holds. What is dirty here is newer; what the file lacks must be written to it.
func (r *Resilient) merge(inFile []tuner.Learned) {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.forgotten) // what the file has too much of shows now
	known := make(map[tuner.Key]bool, len(inFile))
	newestFirst(inFile)
	now := r.now()
	for _, l := range inFile {
		known[l.Key] = true
		late := l.SeenNs > now // the host's clock was ahead: this must not be the newest for ever
		l.SeenNs = min(l.SeenNs, now)
		switch {
		case r.dirty[l.Key] != nil:
			if len(l.Refused) > 0 { // meanwhile, by who had the file
				r.keep(r.dirty[l.Key].learned.Refusing(l.Refused...), true)
			}
		case r.records >= r.limit && r.groups[groupOf(l.Key)][l.Key.Bucket] == nil:
			r.forgotten[l.Key] = true
		default:
			r.keep(l, late)
		}
	}
	for _, g := range r.groups {
		for _, rec := range g {
			if !known[rec.learned.Key] {
				r.dirty[rec.learned.Key] = rec
			}
		}
	}
}
