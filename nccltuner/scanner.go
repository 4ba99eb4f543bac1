package nccltuner

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"
)

// Changes is what a scan or a sweep found. The slices are valid until the next scan or sweep. Records and rings that are
// gone have left the scanner: the caller drains the ring once more and closes both.
type Changes struct {
	Records     []*Record
	Rings       []*Ring
	GoneRecords []*Record
	GoneRings   []*Ring
	Removed     []string // names of stale files that were deleted
	Rejected    []error  // files that are left alone, each said once; what errors.Is finds says why
}

func (c *Changes) reset() {
	c.Records, c.Rings, c.GoneRecords, c.GoneRings = c.Records[:0], c.Rings[:0], c.GoneRecords[:0], c.GoneRings[:0]
	c.Removed, c.Rejected = c.Removed[:0], c.Rejected[:0]
}

// Scanner finds the files that ranks create. A scan in which nothing happened costs one look at the directory's time, and after a sweep
// one listing.
type Scanner struct {
	dir   *Dir
	kept  map[string]bool // names of files there that are not ranks'
	files map[string]*file
	scans uint64
	stamp fileStamp // of the directory when it was listed last
	quiet bool      // all that was there is open, and what comes later changes the stamp
	buf   []byte
	fresh []string
	alive func(Process) (bool, error) // Process.Alive; tests put their own
	view  RecordView
}

// file is what the scanner knows about one name.
type file struct {
	listed uint64 // inode as the directory stated it
	seen   uint64 // number of the scan that saw it last
	record *Record
	ring   *Ring
	// For a file that was not opened: why, and what it looked like.
	verdict error
	stamp   fileStamp
	said    bool
}

// NewScanner makes a scanner that has seen nothing. It passes over the files of paths, which a user may have put into the directory:
// a store, a trace.
func NewScanner(d *Dir, paths ...string) *Scanner {
	s := &Scanner{dir: d, kept: map[string]bool{}, files: map[string]*file{}, buf: make([]byte, 32<<10), alive: Process.Alive}
	for _, path := range paths {
		if filepath.Dir(path) == filepath.Clean(d.path) {
			s.kept[filepath.Base(path)] = true
		}
	}
	return s
}

// ours are the files of the directory that are neither record nor ring.
func ours(name []byte) bool {
	switch string(name) {
	case DaemonLockName, joinLockName, SocketName, RunsLockName, StartLockName, DaemonLogName, StoreName:
		return true
	}
	return false
}

// Scan looks for files that appeared, were replaced or disappeared. An error means that the directory itself cannot be
// read; trouble with a single file is in Rejected.
func (s *Scanner) Scan(c *Changes) error {
	c.reset()
	stamp, exists := dirStamp(s.dir.fd)
	if !exists {
		return fmt.Errorf("directory %s was removed; start the daemon again: %w", s.dir.path, ErrDirectory)
	}
	if s.quiet && s.stamp == stamp {
		return nil
	}
	past := stamp.past(time.Now())
	s.quiet = false
	s.scans++
	s.fresh = s.fresh[:0]
	err := listDir(s.dir.fd, s.buf, func(name []byte, ino uint64) {
		if ours(name) || s.kept[string(name)] {
			return
		}
		f := s.files[string(name)] // no copy of the name is made here
		if f == nil {
			f = &file{}
			s.files[string(name)] = f
		}
		f.seen = s.scans
		if f.listed != ino || f.record == nil && f.ring == nil {
			f.listed = ino
			s.fresh = append(s.fresh, string(name))
		}
	})
	if err != nil {
		return fmt.Errorf("directory %s: %w", s.dir.path, err)
	}
	for name, f := range s.files {
		if f.seen != s.scans {
			f.drop(c)
			delete(s.files, name)
		}
	}
	slices.Sort(s.fresh)
	for _, name := range s.fresh {
		s.look(name, s.files[name], c)
	}
	slices.SortFunc(c.GoneRecords, func(a, b *Record) int { return cmp.Compare(a.Name(), b.Name()) })
	slices.SortFunc(c.GoneRings, func(a, b *Ring) int { return cmp.Compare(a.Name(), b.Name()) })
	s.stamp, s.quiet = stamp, past && len(s.fresh) == 0
	return nil
}

// Quiet says that the latest scan left no file unopened and that whatever appears from then on is a change of the directory.
func (s *Scanner) Quiet() bool { return s.quiet }

// drop hands what was open to the caller.
func (f *file) drop(c *Changes) {
	if f.record != nil {
		c.GoneRecords = append(c.GoneRecords, f.record)
	}
	if f.ring != nil {
		c.GoneRings = append(c.GoneRings, f.ring)
	}
	f.record, f.ring = nil, nil
}

// look opens a file that is new, was replaced, or could not be opened before.
func (s *Scanner) look(name string, f *file, c *Changes) {
	stamp, err := statAt(s.dir.fd, name)
	if errors.Is(err, fs.ErrNotExist) {
		return // gone since the listing; the next scan sees that
	}
	if err != nil {
		s.reject(f, fileStamp{}, err, c)
		return
	}
	// On a stacked file system the directory may state another inode than stat.
	if f.record != nil && f.record.memory.id == stamp.id || f.ring != nil && f.ring.memory.id == stamp.id {
		return
	}
	f.drop(c)
	if f.verdict != nil && f.stamp == stamp && final(f.verdict) {
		return // still the file that was rejected
	}
	if commID, ok := parseRecordName(name); ok {
		f.record, err = s.dir.OpenRecord(commID)
		if err == nil {
			c.Records = append(c.Records, f.record)
		}
	} else if process, ok := parseRingName(name); ok {
		f.ring, err = s.dir.OpenRing(process)
		if err == nil {
			c.Rings = append(c.Rings, f.ring)
		}
	} else {
		err = fmt.Errorf("%s is no file of DynamICCL: %w", name, ErrForeign)
	}
	if err != nil {
		s.reject(f, stamp, err, c)
		return
	}
	f.verdict, f.said = nil, false
}

// final says that looking at the same file again cannot change the verdict.
func final(err error) bool {
	return errors.Is(err, ErrForeign) || errors.Is(err, ErrGarbage) || errors.Is(err, ErrVersion) || errors.Is(err, ErrElsewhere) || errors.Is(err, ErrTorn)
}

// reject remembers why a file was not opened and says so once an inode. A file that is not ready is not worth a word.
func (s *Scanner) reject(f *file, stamp fileStamp, err error, c *Changes) {
	if f.stamp.id != stamp.id {
		f.said = false
	}
	f.record, f.ring, f.verdict, f.stamp = nil, nil, err, stamp
	if !f.said && !errors.Is(err, ErrNotReady) && !errors.Is(err, fs.ErrNotExist) {
		f.said = true
		c.Rejected = append(c.Rejected, err)
	}
}

// OtherLayouts counts the processes whose rings have another layout than ours, by layout: their programs are not ours to tune.
func (s *Scanner) OtherLayouts() map[uint32]int {
	var all map[uint32]int
	for name, f := range s.files {
		other := new(VersionError)
		if _, ok := parseRingName(name); !ok || !errors.As(f.verdict, &other) {
			continue
		}
		if all == nil {
			all = map[uint32]int{}
		}
		all[other.Found]++
	}
	return all
}

// Close closes every record and ring that the scanner still has.
func (s *Scanner) Close() error {
	var all []error
	for _, f := range s.files {
		if f.record != nil {
			all = append(all, f.record.Close())
		}
		if f.ring != nil {
			all = append(all, f.ring.Close())
		}
	}
	clear(s.files)
	return errors.Join(all...)
}
