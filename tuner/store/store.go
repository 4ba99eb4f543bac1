package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"sync"

	"dynamiccl/state"
	"dynamiccl/tuner"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

var learnedBucket = []byte("learned")

// Store is one open file. Its methods may be called from several goroutines; they wait for the disk.
type Store struct {
	path    string
	options Options
	file    *os.File // the same that db holds
	db      *bbolt.DB

	mu     sync.Mutex
	stats  Stats
	broken error // bbolt panicked: its locks are in an unknown state, it must not be called again
	closed bool
}

// Stats is what a store has met since it was opened.
type Stats struct {
	Records         int
	Bytes           int64  // of the file
	Bad             int    // records passed over because they cannot be read, counted every time
	LastBad         string // what was wrong with the last one
	Rejected        int    // records that Put refused
	MigratedFrom    int    // schema found at Open; 0: ours
	Migrated        int    // records migrated
	MigratedSkipped int    // records that could not be, left in the file where they were
	MovedTo         string // where Open moved a corrupt file; "": nowhere
}

// guard runs fn with every panic of bbolt, and every fault in its mapped file, turned into ErrCorrupt.
func (s *Store) guard(fn func() error) (err error) {
	s.mu.Lock()
	broken, closed := s.broken, s.closed
	s.mu.Unlock()
	if closed {
		return ErrClosed
	}
	if broken != nil {
		return broken
	}
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer func() {
		if r := recover(); r != nil {
			err = corrupt("bbolt: %v", r)
			s.mu.Lock()
			s.broken = err
			s.mu.Unlock()
		}
	}()
	return fn()
}

// Load gives what was learned for one machine shape, GPU architecture, NCCL version and communicator shape, in the
// order of collectives and sizes. Records that cannot be read are passed over, counted and reported.
func (s *Store) Load(machine, arch string, ncclVersion int, shape state.Shape) ([]tuner.Learned, error) {
	out, err := s.scan([]byte(encodePrefix(machine, arch, ncclVersion, shape)))
	if err != nil {
		return nil, wrap("reading", s.path, err)
	}
	slices.SortFunc(out, byBucket)
	return out, nil
}

func byBucket(a, b tuner.Learned) int {
	if c := int(a.Key.Bucket.Collective) - int(b.Key.Bucket.Collective); c != 0 {
		return c
	}
	return int(a.Key.Bucket.Log2Bytes) - int(b.Key.Bucket.Log2Bytes)
}

// All calls fn for every readable record, in the order of keys, until fn gives an error, which it returns.
func (s *Store) All(fn func(tuner.Learned) error) error {
	all, err := s.scan(nil)
	if err != nil {
		return wrap("reading", s.path, err)
	}
	for _, l := range all { // outside guard: a panic of the caller is not a corrupt file
		if err := fn(l); err != nil {
			return err
		}
	}
	return nil
}

type badRecord struct {
	key string
	err error
}

func (s *Store) scan(prefix []byte) ([]tuner.Learned, error) {
	var out []tuner.Learned
	var bad []badRecord
	err := s.view(func(b *bbolt.Bucket) error {
		c := b.Cursor()
		for k, v := c.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix); k, v = c.Next() {
			if l, err := decodeValue(k, v); err == nil {
				out = append(out, l)
			} else {
				bad = append(bad, badRecord{string(k), err})
			}
		}
		return nil
	})
	s.report(bad)
	return out, err
}

func (s *Store) view(fn func(*bbolt.Bucket) error) error {
	return s.guard(func() error {
		return s.db.View(func(tx *bbolt.Tx) error {
			b := tx.Bucket(learnedBucket)
			if b == nil {
				return corrupt("bucket %q is gone", learnedBucket)
			}
			return fn(b)
		})
	})
}

func (s *Store) report(bad []badRecord) {
	for _, r := range bad {
		s.mu.Lock()
		s.stats.Bad++
		s.stats.LastBad = r.err.Error()
		s.mu.Unlock()
		if s.options.OnBad != nil {
			s.options.OnBad(r.key, r.err)
		}
	}
}

// Versions gives the other NCCL versions, ascending, for which something was learned on this machine and shape.
func (s *Store) Versions(machine, arch string, ncclVersion int, shape state.Shape) ([]int, error) {
	group := encodeGroup(machine, arch, shape)
	var out []int
	var bad []badRecord
	err := s.view(func(b *bbolt.Bucket) error {
		c := b.Cursor()
		for k, _ := c.Seek([]byte(group)); k != nil && bytes.HasPrefix(k, []byte(group)); {
			key, err := decodeKey(k)
			if err != nil {
				bad = append(bad, badRecord{string(k), err})
				k, _ = c.Next()
				continue
			}
			if key.NCCLVersion != ncclVersion {
				out = append(out, key.NCCLVersion)
			}
			// '0' follows '/': the first key after all of this version.
			k, _ = c.Seek([]byte(fmt.Sprintf("%s%d0", group, key.NCCLVersion)))
		}
		return nil
	})
	s.report(bad)
	if err != nil {
		return nil, wrap("reading", s.path, err)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Put stores a batch in one transaction: after a crash all of it is there or nothing. A record replaces the one under
// its key. Records that no measurement can give (NaN, negative or infinite costs, ...) are left out and counted; the
// others are stored and the error is ErrInvalid.
func (s *Store) Put(batch []tuner.Learned) error {
	var keys, values [][]byte
	var rejected []error
	for _, l := range batch {
		if l.SeenNs == 0 {
			l.SeenNs = s.now()
		}
		key, err := encodeKey(l.Key)
		var value []byte
		if err == nil {
			value, err = encodeValue(key, l)
		}
		if err != nil {
			rejected = append(rejected, err)
			continue
		}
		keys, values = append(keys, key), append(values, value)
	}
	s.mu.Lock()
	s.stats.Rejected += len(rejected)
	s.mu.Unlock()
	if len(keys) > 0 {
		err := s.guard(func() error {
			return s.db.Update(func(tx *bbolt.Tx) error {
				b := tx.Bucket(learnedBucket)
				if b == nil {
					return corrupt("bucket %q is gone", learnedBucket)
				}
				for i := range keys {
					if err := b.Put(keys[i], values[i]); err != nil {
						return err
					}
				}
				return nil
			})
		})
		if err != nil {
			return wrap("writing", s.path, err)
		}
	}
	if len(rejected) > 0 {
		return wrap("writing", s.path, fmt.Errorf("%d of %d records, the first: %w", len(rejected), len(batch), rejected[0]))
	}
	return nil
}

// now counts from 1970, as all instants of records do; 0 where the host's clock has no such time.
func (s *Store) now() state.Ns { return max(0, state.Ns(s.options.Now().UnixNano())) }

// Stats counts the records and gives the rest from memory.
func (s *Store) Stats() (Stats, error) {
	records := 0
	err := s.view(func(b *bbolt.Bucket) error {
		return b.ForEach(func(_, _ []byte) error {
			records++
			return nil
		})
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.Records = records
	if info, e := s.file.Stat(); e == nil {
		st.Bytes = info.Size()
	} else {
		err = errors.Join(err, e)
	}
	return st, wrap("reading", s.path, err)
}

// Close releases the file. After a panic of bbolt only the file and its lock: bbolt's own Close could wait for ever.
func (s *Store) Close() error {
	s.mu.Lock()
	broken, closed := s.broken, s.closed
	s.mu.Unlock()
	if closed {
		return nil
	}
	var err error
	if broken == nil {
		err = s.guard(s.db.Close)
		s.mu.Lock()
		broken = s.broken
		s.mu.Unlock()
	}
	if broken != nil {
		err = release(s.file)
	}
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	return wrap("closing", s.path, err)
}

// release unlocks explicitly: memory that bbolt has mapped keeps the lock alive after the file is closed.
func release(file *os.File) error {
	return errors.Join(unix.Flock(int(file.Fd()), unix.LOCK_UN), file.Close())
}
