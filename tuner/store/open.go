package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"
)

// Options of Open. The zero value is what a daemon needs but ReplaceCorrupt.
type Options struct {
	ReadOnly       bool          // for people who look at a file; takes a shared lock, changes nothing
	ReplaceCorrupt bool          // move a corrupt file to NAME.corrupt-<n> and begin a new one
	LockTimeout    time.Duration // wait for another process, 0: 1 s
	MaxBytes       int           // size that the file may grow to, 0: 256 MiB
	// OnBad hears of every record that is passed over because it cannot be read. Key is as stored.
	OnBad func(key string, err error)
	Now   func() time.Time // nil: time.Now
}

const (
	defaultLockTimeout = time.Second
	defaultMaxBytes    = 256 << 20
	lockPoll           = 20 * time.Millisecond
	maxCorruptCopies   = 9 // a failing disk must not fill itself with them
	maxLockRaces       = 100
)

// Open opens the store, creates it when there is none (unless ReadOnly), and migrates it to the present schema.
func Open(path string, o Options) (*Store, error) {
	if o.LockTimeout <= 0 {
		o.LockTimeout = defaultLockTimeout
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = defaultMaxBytes
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real // what is moved aside must be the file, not the link to it
	}
	s, err := open(path, o)
	if err != nil {
		return nil, wrap("opening", path, err)
	}
	return s, nil
}

func open(path string, o Options) (*Store, error) {
	if !o.ReadOnly {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			return nil, &Error{"opening", path, ErrNoAccess, err} // nobody may make folders there, as in /proc
		} else if err != nil {
			return nil, err
		}
	}
	s := &Store{path: path, options: o}
	file, err := lockFile(path, o)
	if errors.Is(err, fs.ErrNotExist) && !o.ReadOnly { // its folder is there
		if to, _ := os.Readlink(path); to != "" {
			err = fmt.Errorf("%w, for it is a link to %s", err, to)
		}
		return nil, &Error{"opening", path, ErrNoAccess, err}
	}
	if err != nil {
		return nil, err
	}
	if err := verifyFile(file, o); err != nil {
		return replace(path, o, err, file.Close)
	}
	if err := s.openBolt(file); err != nil {
		return nil, err
	}
	found, err := s.readSchema()
	if err != nil {
		return replace(path, o, err, s.Close)
	}
	if err := s.migrate(found); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// replace moves a corrupt file aside, and begins a new one, where that is wanted; unlock closes it. Any other error, and elsewhere, it gives back.
func replace(path string, o Options, reason error, unlock func() error) (*Store, error) {
	if !errors.Is(reason, ErrCorrupt) || !o.ReplaceCorrupt || o.ReadOnly {
		return nil, errors.Join(reason, unlock())
	}
	aside, err := moveAside(path, reason) // still locked: nobody else can take the file for good, or move it as well
	if err := errors.Join(err, unlock()); err != nil {
		return nil, err
	}
	// Whoever had it moved as well in between is bounded by the number of copies.
	fresh, err := open(path, o)
	if err != nil {
		return nil, err
	}
	fresh.stats.MovedTo = aside
	return fresh, nil
}

// lockFile opens and locks the file, and makes sure that the path still leads to it then: the process that held the
// lock may have moved it aside.
func lockFile(path string, o Options) (*os.File, error) {
	flags, how := os.O_RDWR|os.O_CREATE, unix.LOCK_EX
	if o.ReadOnly {
		flags, how = os.O_RDONLY, unix.LOCK_SH
	}
	deadline := time.Now().Add(o.LockTimeout)
	for range maxLockRaces {
		// Looked at before it is opened: opening a pipe may wait for ever, opening a device may do anything.
		if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s: %w", info.Mode().Type(), ErrNotStore)
		}
		file, err := os.OpenFile(path, flags|syscall.O_NONBLOCK, 0o600)
		if err != nil {
			return nil, err
		}
		if err := flock(file, how, deadline); err != nil {
			file.Close()
			return nil, err
		}
		opened, err1 := file.Stat()
		named, err2 := os.Stat(path)
		if err1 == nil && err2 == nil && os.SameFile(opened, named) {
			return file, nil
		}
		file.Close()
	}
	return nil, fmt.Errorf("it is replaced again and again: %w", ErrLocked)
}

func flock(file *os.File, how int, deadline time.Time) error {
	for {
		err := unix.Flock(int(file.Fd()), how|unix.LOCK_NB)
		if err != unix.EWOULDBLOCK && err != unix.EINTR {
			return err
		}
		if time.Now().After(deadline) {
			return bolterrors.ErrTimeout
		}
		time.Sleep(lockPoll)
	}
}

// verifyFile lets only a file pass that bbolt can be trusted with. A file whose creation was cut short is emptied, which
// makes it a new one.
func verifyFile(file *os.File, o Options) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size() > 0 {
		err = verify(file, info.Size())
	}
	switch {
	case o.ReadOnly && (info.Size() == 0 || errors.Is(err, errUnborn)):
		return fmt.Errorf("an empty file: %w", ErrMissing)
	case errors.Is(err, errUnborn):
		return file.Truncate(0)
	}
	return err
}

// moveAside renames the corrupt file to the first free NAME.corrupt-<n>.
func moveAside(path string, reason error) (string, error) {
	for n := 1; n <= maxCorruptCopies; n++ {
		aside := fmt.Sprintf("%s.corrupt-%d", path, n)
		if _, err := os.Lstat(aside); err == nil {
			continue
		}
		if err := os.Rename(path, aside); err != nil {
			return "", err
		}
		return aside, nil
	}
	return "", fmt.Errorf("%w; %d corrupt copies lie beside it already: delete them, and look at the disk", reason, maxCorruptCopies)
}

// openBolt hands the file that we locked and checked to bbolt; its own lock on the same open file is granted at once.
func (s *Store) openBolt(file *os.File) error {
	s.file = file
	err := s.guard(func() (err error) {
		s.db, err = bbolt.Open(s.path, 0o600, &bbolt.Options{
			Timeout:      s.options.LockTimeout,
			ReadOnly:     s.options.ReadOnly,
			MaxSize:      s.options.MaxBytes,
			FreelistType: bbolt.FreelistMapType,
			NoStatistics: true,
			OpenFile:     func(string, int, os.FileMode) (*os.File, error) { return file, nil },
		})
		return err
	})
	if s.broken != nil {
		release(file) // bbolt closes it when it fails, but not when it panics
	}
	return err
}
