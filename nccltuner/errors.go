package nccltuner

import (
	"errors"
	"fmt"
)

var (
	// ErrNotReady is returned for a file that its creator has not finished. This is normal for moments; a later scan
	// opens it.
	ErrNotReady = errors.New("file is not ready yet")

	// ErrTorn is returned when a file is shorter than it says. This typically occurs when somebody truncated it.
	ErrTorn = errors.New("file is shorter than it says")

	// ErrVersion is returned when a file has another layout version. This typically occurs while plugin and daemon of
	// different releases run together; the remedy is to use one release for both.
	ErrVersion = errors.New("file has another layout version")

	// ErrElsewhere is returned when the processes of a file are in another PID namespace, as those of another container are: nobody
	// here can tell whether they live.
	ErrElsewhere = errors.New("its processes are in another PID namespace")

	// ErrGarbage is returned when the content contradicts the layout or itself.
	ErrGarbage = errors.New("file content makes no sense")

	// ErrForeign is returned for a file that is not ours: another owner, not a regular file, or a name of nobody.
	ErrForeign = errors.New("foreign file")

	// ErrDirectory is returned when the directory of the shared files cannot be used safely.
	ErrDirectory = errors.New("directory cannot be used")

	// ErrDirectoryInUse is returned when another daemon serves the directory.
	ErrDirectoryInUse = errors.New("another daemon serves this directory")

	// ErrLockLost is returned when the file that a daemon has locked is not the directory's any more: somebody removed it, so that
	// another daemon may have locked a new one.
	ErrLockLost = errors.New("the daemon's lock is gone")

	// ErrBusy is returned when a file cannot be removed yet: its process lives, or samples are left.
	ErrBusy = errors.New("file is in use")

	// ErrNoFreeBuffer is returned when no plan buffer is proved free. The caller keeps its plan and tries again later:
	// nobody is entering epochs, so nothing is lost.
	ErrNoFreeBuffer = errors.New("no free plan buffer")

	// ErrBadPlan is returned for a plan that the layout cannot hold. It is our own mistake, not a rank's.
	ErrBadPlan = errors.New("plan does not fit the layout")

	// ErrClosed is returned for a record or ring after Close.
	ErrClosed = errors.New("file is closed")

	// ErrBadStat is returned when /proc/PID/stat cannot be understood.
	ErrBadStat = errors.New("cannot understand /proc/PID/stat")
)

// VersionError is ErrVersion with the layout that was found.
type VersionError struct{ Found uint32 }

func (e *VersionError) Error() string {
	return fmt.Sprintf("version %d, this daemon speaks %d; use plugin and daemon of one release: %v", e.Found, ABIVersion, ErrVersion)
}

// Is makes it ErrVersion.
func (e *VersionError) Is(target error) bool { return target == ErrVersion }
