package nccltuner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// DirVariable names the directory in the environment of ranks and daemon alike.
const DirVariable = "DYNAMICCL_DIR"

// ForcedVariable is set for ranks that `calibrate` or `sweep` tells what to run: none of them misses a daemon.
const ForcedVariable = "DYNAMICCL_FORCED"

// NewGraphsVariable is set for ranks that capture their calls anew and update no graph: what was captured with NCCL's kernels may go to ours.
const NewGraphsVariable = "DYNAMICCL_NEW_GRAPHS"

// runtimeVariable names the user's runtime directory (XDG base directory specification).
const runtimeVariable = "XDG_RUNTIME_DIR"

// Files of the directory beside records and rings (docs/design.md, decision 1).
const (
	DaemonLockName = "daemon.lock"
	joinLockName   = "join.lock"
	SocketName     = "control.sock"
	RunsLockName   = "runs.lock"  // shared by every `dynamiccld run` while it lives (decision 21)
	StartLockName  = "start.lock" // held by the one `dynamiccld run` that starts a daemon
	DaemonLogName  = "daemon.log" // of a daemon that was started by `dynamiccld run`
	StoreName      = "store.db"   // of a user who has no folder for it
)

// DirPath says where the shared files are (docs/design.md, decision 1). Ranks follow the same rule in C. getenv is
// os.Getenv.
func DirPath(getenv func(string) string, euid int) (string, error) {
	dir := getenv(DirVariable)
	if dir == "" {
		return DefaultDirPath(getenv, euid), nil
	}
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("%s gives the relative path %s, ranks and daemon would look in different places; set %[1]s to an absolute path: %[3]w",
			DirVariable, dir, ErrDirectory)
	}
	return filepath.Clean(dir), nil
}

// DefaultDirPath is DirPath where DYNAMICCL_DIR is not set. It passes over a runtime directory that is not there or is another user's:
// srun and su hand the variable on to where this user has not logged in. A relative one is to be passed over by its specification.
func DefaultDirPath(getenv func(string) string, euid int) string {
	if euid == 0 {
		return "/run/dynamiccl"
	}
	if runtime := getenv(runtimeVariable); filepath.IsAbs(runtime) && takesFiles(runtime) {
		return filepath.Join(runtime, "dynamiccl")
	}
	return "/tmp/dynamiccl-" + strconv.Itoa(euid)
}

// Dir is the open directory of the shared files. Files are reached through its descriptor, so that a directory swapped
// under its path is never half used.
type Dir struct {
	path   string
	uid    uint32
	fd     int
	lock   int    // descriptor of daemon.lock, -1: not locked
	lockID fileID // of the file that is locked
}

// OpenDir makes the directory when it is missing, checks that nobody else can put files there, and opens it. The parent
// must exist.
func OpenDir(path string) (*Dir, error) {
	uid := uint32(os.Geteuid())
	path = filepath.Clean(path) // a trailing slash would follow a symbolic link
	fd, st, err := makeAndOpenDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("directory %s: %w; make its parent, or set %s: %w", path, err, DirVariable, ErrDirectory)
	}
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
		return nil, fmt.Errorf("directory %s: %w; set %s to a directory of %s: %w", path, err, DirVariable, userName(uid), ErrDirectory)
	}
	if errors.Is(err, unix.ENOSPC) {
		return nil, fmt.Errorf("directory %s: %w; free some space, or set %s to a directory with more: %w", path, err, DirVariable, ErrDirectory)
	}
	if err != nil {
		return nil, fmt.Errorf("directory %s: %w; remove what is there, or set %s to a directory of %s: %w",
			path, err, DirVariable, userName(uid), ErrDirectory)
	}
	if err := checkDir(path, st, uid); err != nil {
		return nil, errors.Join(err, closeFD(fd))
	}
	return &Dir{path: path, uid: uid, fd: fd, lock: -1}, nil
}

// checkDir refuses a directory in which another user could have put files.
func checkDir(path string, st dirStatus, uid uint32) error {
	if st.uid != uid {
		return fmt.Errorf("directory %s belongs to %s and this is %s; run ranks and daemon as one user, or set %s to a directory of %[3]s: %[5]w",
			path, userName(st.uid), userName(uid), DirVariable, ErrDirectory)
	}
	if st.perm&0o777 != 0o700 {
		orClose := ""
		if MayBeClosed(path) {
			orClose = ", or, if this is it, chmod 0700 " + path
		}
		return fmt.Errorf("directory %s of %s has mode %04o, others could reach it; name one that nothing else uses, like %s%s: %w",
			path, userName(uid), st.perm, filepath.Join(path, "dynamiccl"), orClose, ErrDirectory)
	}
	return nil
}

// MayBeClosed says that nobody else seems to need a directory, so that it may be closed to others: not the root, nor one that all may make
// files in, nor one with anything in it but what daemon and ranks make.
func MayBeClosed(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&fs.ModeSticky != 0 || filepath.Clean(path) == "/" {
		return false
	}
	entries, err := os.ReadDir(path)
	return err == nil && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return !ours([]byte(e.Name())) && !OfRanks(e.Name())
	})
}

// userName is for messages: the number always, the name when it is known.
func userName(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return fmt.Sprintf("user %s (%s)", id, u.Username)
	}
	return "user " + id
}

// Path is the directory's path as opened.
func (d *Dir) Path() string { return d.path }

// lookedAtFor bounds how long ranks that join may hold the daemon's lock one after the other: each takes it shared for
// two system calls, to see whether a daemon has it (plugin/directory.c).
const lookedAtFor = 50 * time.Millisecond

// Lock makes this process the directory's daemon until Close or its death. Records have one publisher, so everything that
// writes needs the lock.
func (d *Dir) Lock() error {
	if d.lock >= 0 {
		return nil
	}
	fd, held, err := lockFile(d.fd, DaemonLockName)
	for end := time.Now().Add(lookedAtFor); held && err == nil && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
		if err = closeFD(fd); err == nil {
			fd, held, err = lockFile(d.fd, DaemonLockName)
		}
	}
	if err != nil {
		return fmt.Errorf("directory %s: %w; set %s to one that can be written: %w", d.path, err, DirVariable, ErrDirectory)
	}
	if held {
		err := fmt.Errorf("directory %s is served by %v; stop it, or set %s to another directory: %w",
			d.path, ParseHolder(readContent(fd)), DirVariable, ErrDirectoryInUse)
		return errors.Join(err, closeFD(fd))
	}
	if d.lockID, err = idOf(fd); err != nil {
		return errors.Join(fmt.Errorf("directory %s: looking at %s: %w", d.path, DaemonLockName, err), closeFD(fd))
	}
	// The pid is for messages, layout and PID namespace are for ranks that join (plugin/record.c); the lock itself is what counts.
	if err := replaceContent(fd, fmt.Sprintf("%d\n%d\n%d\n", os.Getpid(), ABIVersion, pidNamespace())); err != nil {
		return errors.Join(fmt.Errorf("directory %s: writing %s: %w; free some space, or set %s to a directory with more: %w", d.path, DaemonLockName, err, DirVariable, ErrDirectory), closeFD(fd))
	}
	d.lock = fd
	shareLock(d.fd) // systemd-tmpfiles passes over directories that somebody has locked (tmpfiles.d(5), "Age")
	return nil
}

// Holder is what the holder of a directory's daemon lock says of itself.
type Holder struct {
	PID       int  // 0: it has not said yet, or Elsewhere, where it is another process's
	Elsewhere bool // it is in another PID namespace
}

func (h Holder) String() string {
	switch {
	case h.Elsewhere:
		return "a process in another PID namespace, as of another container"
	case h.PID == 0:
		return "a process that has not said its pid yet"
	}
	return "process " + strconv.Itoa(h.PID)
}

// ParseHolder reads the content of the lock's file.
func ParseHolder(text string) (h Holder) {
	lines := strings.Split(text, "\n")
	if len(lines) > 3 {
		namespace, _ := strconv.ParseUint(lines[2], 10, 32) // 0: it does not say
		h.Elsewhere = Elsewhere(uint32(namespace))
	}
	if pid, err := strconv.ParseUint(lines[0], 10, 31); err == nil && !h.Elsewhere {
		h.PID = int(pid)
	}
	return h
}

// Serves gives ErrLockLost once this process is not the one daemon of its path any more. The kernel keeps the lock on a file that was
// removed, and gives the next daemon one on a new file: then two would publish into the same records. What cannot be looked at is not
// lost.
func (d *Dir) Serves() error {
	now, err := statPath(filepath.Join(d.path, DaemonLockName))
	if err == nil && now == d.lockID || err != nil && !missing(err) {
		return nil
	}
	return fmt.Errorf("%s was removed or replaced while this daemon held it, and another daemon may serve %s now: this one must end; leave the files of a "+
		"directory alone while somebody uses it: %w", filepath.Join(d.path, DaemonLockName), d.path, ErrLockLost)
}

// tryJoinLock takes the lock under which ranks create and replace records. It never waits: a daemon that is refused
// tries again at its next sweep. ok is false when a rank has it.
func (d *Dir) tryJoinLock() (unlock func(), ok bool, err error) {
	fd, held, err := lockFile(d.fd, joinLockName)
	if err != nil {
		return nil, false, fmt.Errorf("directory %s: %w", d.path, err)
	}
	if held {
		return nil, false, closeFD(fd)
	}
	return func() { _ = closeFD(fd) }, true, nil // closing is what unlocks, and it cannot fail for a lock file
}

// remove unlinks a file of ours, but only the very one that was opened: its name may belong to a newer generation by now.
func (d *Dir) remove(name string, id fileID) error {
	stamp, err := statAt(d.fd, name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && stamp.id != id {
		return nil
	}
	if err != nil {
		return err
	}
	return unlinkAt(d.fd, name)
}

// Close gives up the lock, if it is held, and the directory.
func (d *Dir) Close() error {
	var err error
	if d.lock >= 0 {
		err = closeFD(d.lock)
		d.lock = -1
	}
	if d.fd >= 0 {
		err = errors.Join(err, closeFD(d.fd))
		d.fd = -1
	}
	return err
}
