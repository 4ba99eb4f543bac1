package store

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	bolterrors "go.etcd.io/bbolt/errors"
)

// Kinds of failure; every error of this package is one of them (errors.Is).
var (
	ErrCorrupt     = errors.New("the store is corrupt")
	ErrNotStore    = errors.New("not a DynamICCL store")
	ErrNoAccess    = errors.New("no permission")
	ErrFull        = errors.New("no space left for the store")
	ErrName        = errors.New("the store has too long a name")
	ErrLocked      = errors.New("another process uses the store")
	ErrMissing     = errors.New("there is no store")
	ErrNewerSchema = errors.New("the store was written by a newer DynamICCL")
	ErrOlderSchema = errors.New("the store was written by an older DynamICCL")
	ErrInvalid     = errors.New("record not stored")
	ErrClosed      = errors.New("the store is closed")
	ErrDisk        = errors.New("the disk failed")
)

// In the order in which wrap looks for them: an error of two kinds is of the first.
var remedies = []struct {
	kind   error
	remedy string
}{
	{ErrCorrupt, "move the file away, the daemon begins a new one; its loss costs learning time, nothing else"},
	{ErrNotStore, "name another file with --store; this one was not touched"},
	{ErrNoAccess, "let the daemon's user read and write the file and its directory, or name another file with --store"},
	{ErrFull, "free some space, raise a limit on the size of files (ulimit -f), or name a file on another disk with --store"},
	{ErrName, "name another file with --store"},
	{ErrLocked, "ask the daemon that uses it instead of the file, stop that daemon, or name another file with --store"},
	{ErrMissing, "name the file with --store; the daemon creates it when it first starts"},
	{ErrNewerSchema, "use the newer dynamiccld, or name another file with --store"},
	{ErrOlderSchema, "start the daemon on it once, it migrates the file"},
	{ErrInvalid, "report it: a measurement made no sense"},
	{ErrClosed, "open it again"},
	{ErrDisk, "look at the kernel log and the disk, or name another file with --store"},
}

// Error is a failure with its remedy.
type Error struct {
	Op    string // what was being done: "opening"
	Path  string
	Kind  error // one of the kinds above
	Cause error // nil: the kind says all
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s %s: %v", e.Op, e.Path, e.Kind)
	if e.Cause != nil {
		s += " (" + strings.TrimSuffix(e.Cause.Error(), ": "+e.Kind.Error()) + ")"
	}
	return s + "; remedy: " + e.Remedy()
}

// Remedy says what a person can do.
func (e *Error) Remedy() string {
	for _, r := range remedies {
		if r.kind == e.Kind {
			return r.remedy
		}
	}
	return ""
}

func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}

var kindsOfCause = []struct{ cause, kind error }{
	{syscall.ENOSPC, ErrFull}, {syscall.EDQUOT, ErrFull}, {syscall.EFBIG, ErrFull},
	{bolterrors.ErrMaxSizeReached, ErrFull},
	{syscall.EROFS, ErrNoAccess}, {syscall.EACCES, ErrNoAccess}, {syscall.EPERM, ErrNoAccess},
	{fs.ErrNotExist, ErrMissing}, {syscall.ELOOP, ErrNotStore}, {syscall.ENAMETOOLONG, ErrName},
	{bolterrors.ErrTimeout, ErrLocked},
	{bolterrors.ErrInvalid, ErrCorrupt}, {bolterrors.ErrChecksum, ErrCorrupt},
	{bolterrors.ErrDatabaseNotOpen, ErrClosed},
}

// wrap gives err its kind. An Error keeps what it says.
func wrap(op, path string, err error) error {
	var done *Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	for _, r := range remedies {
		if err == r.kind {
			return &Error{op, path, r.kind, nil}
		}
		if errors.Is(err, r.kind) {
			return &Error{op, path, r.kind, err}
		}
	}
	for _, c := range kindsOfCause {
		// bbolt formats the cause with %s when it cannot grow a file: only the text is left.
		if errors.Is(err, c.cause) || c.kind == ErrFull && strings.Contains(err.Error(), c.cause.Error()) {
			return &Error{op, path, c.kind, err}
		}
	}
	return &Error{op, path, ErrDisk, err}
}
