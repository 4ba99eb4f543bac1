package store

import (
	"errors"
	"fmt"
	"os"

	"dynamiccl/tuner"
)

// Flush writes what is dirty. It may wait for the disk and for a lock; Put and Load do not wait for it. While the file
// does not work it is tried again only when its pause is over; the error says what is wrong, and the log has said so.
func (r *Resilient) Flush() error {
	r.io.Lock()
	defer r.io.Unlock()
	if r.closed || r.path == "" {
		return nil
	}
	if r.store == nil && r.options.Now().Before(r.retryAt) {
		return r.Stats().Failing
	}
	if err := r.flush(); err != nil {
		r.failed(err)
		return err
	}
	r.works()
	return nil
}

func (r *Resilient) flush() error {
	if r.store != nil && !r.store.named() {
		// Somebody deleted or replaced the file: what we write would be gone with our last hold on it.
		r.drop()
	}
	err := r.flushOnce()
	if errors.Is(err, ErrCorrupt) {
		err = r.flushOnce() // opening it again moves it aside
	}
	return err
}

func (r *Resilient) flushOnce() error {
	if r.store == nil {
		if err := r.open(); err != nil {
			return err
		}
	}
	if err := r.deleteForgotten(); err != nil {
		r.drop()
		return err
	}
	for {
		batch, recs, changes := r.snapshot()
		if len(batch) == 0 {
			return nil
		}
		if err := r.store.Put(batch); err != nil && !errors.Is(err, ErrInvalid) {
			r.drop() // what a failed write left behind is checked when the file is opened again
			return err
		}
		r.written(recs, changes)
		if len(batch) < recordsAtOnce {
			return nil
		}
	}
}

// named says that the path still leads to the open file.
func (s *Store) named() bool {
	opened, err1 := s.file.Stat()
	named, err2 := os.Stat(s.path)
	return err1 == nil && err2 == nil && os.SameFile(opened, named)
}

func (r *Resilient) drop() {
	if err := r.store.Close(); err != nil {
		r.log.Debug("closing the store after a failure", "error", err)
	}
	r.store = nil
}

// open opens the file and brings memory and file together.
func (r *Resilient) open() error {
	s, err := Open(r.path, r.options)
	if err != nil {
		if errors.Is(err, ErrNoAccess) {
			r.readOnce()
		}
		return err
	}
	inFile, err := collect(s)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	r.store = s
	r.merge(inFile)
	s.mu.Lock()
	st := s.stats
	s.mu.Unlock()
	if st.MovedTo != "" {
		r.mu.Lock()
		r.movedTo = st.MovedTo
		r.mu.Unlock()
		r.log.Warn("the store was corrupt: moved aside, a new one begun", "path", r.path, "moved to", st.MovedTo)
	}
	if st.MigratedFrom != 0 {
		r.log.Info("the store was migrated", "path", r.path, "from schema", st.MigratedFrom, "to schema", Schema,
			"records", st.Migrated, "records left unread", st.MigratedSkipped)
	}
	if st.Bad != 0 {
		r.log.Warn("records of the store cannot be read", "path", r.path, "records", st.Bad, "readable", len(inFile))
	}
	return nil
}

func collect(s *Store) (all []tuner.Learned, err error) {
	err = s.All(func(l tuner.Learned) error {
		all = append(all, l)
		return nil
	})
	return all, err
}

// readOnce takes in a file that we may read but not write: what it knows is as good for a warm start.
func (r *Resilient) readOnce() {
	if r.hasRead {
		return
	}
	r.hasRead = true
	o := r.options
	o.ReadOnly, o.ReplaceCorrupt = true, false
	s, err := Open(r.path, o)
	if err != nil {
		return // the caller reports why the file cannot be written, which explains this too
	}
	if inFile, err := collect(s); err == nil {
		r.merge(inFile)
		r.log.Info("the store can be read, not written: it is used as it is", "path", r.path, "records", len(inFile))
	}
	if err := s.Close(); err != nil {
		r.log.Debug("closing the store after reading", "error", err)
	}
}

// failed notes a failure of the file and says it unless it has been said.
func (r *Resilient) failed(err error) {
	r.pause = min(max(2*r.pause, firstRetry), longestRetry)
	r.retryAt = r.options.Now().Add(r.pause)
	r.mu.Lock()
	news := r.failing == nil || kindOf(r.failing) != kindOf(err)
	r.failing = err
	r.mu.Unlock()
	if news {
		r.log.Warn("learned choices are kept in memory only, tuning goes on", "error", err)
	}
}

func (r *Resilient) works() {
	r.pause = 0
	r.mu.Lock()
	before := r.failing
	r.failing = nil
	r.mu.Unlock()
	if before != nil {
		r.log.Info("the store works again, learned choices are on disk", "path", r.path)
	}
}

func kindOf(err error) error {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return ErrDisk
}

// Close tries once more to write what is dirty, whatever the pauses say, and releases the file. The error says how much
// is lost.
func (r *Resilient) Close() error {
	r.io.Lock()
	defer r.io.Unlock()
	if r.closed || r.path == "" {
		return nil
	}
	r.closed = true
	var err error
	if dirty := r.Stats().Dirty; dirty > 0 || r.store != nil {
		if err = r.flush(); err != nil {
			err = fmt.Errorf("%d learned choices are lost: %w", r.Stats().Dirty, err)
		}
	}
	if r.store != nil {
		err = errors.Join(err, r.store.Close())
		r.store = nil
	}
	return err
}
