package forced

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"dynamiccl/nccltuner"
)

// ScratchPrefix begins the names of these folders.
const ScratchPrefix = "dynamiccl-bench-"

// scratchRoom is what must be free in memory before the shared files go there: NCCL needs room beside them.
const scratchRoom = 1 << 30

// Scratch makes a folder for the shared files of ranks: in memory where there is room, since pages of a disk's file are
// written back while ranks are measured.
func Scratch() (folder string, err error) {
	parent := os.TempDir()
	var st unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &st); err == nil && st.Bavail*uint64(st.Bsize) > scratchRoom && unix.Access("/dev/shm", unix.W_OK) == nil {
		parent = "/dev/shm"
	}
	return Folder(parent, ScratchPrefix)
}

// Folder makes a folder for this process, which removes it, and deletes those of the same prefix that processes left which
// were killed. The prefix goes on with the process's number, and the folder is locked until the process ends.
func Folder(parent, prefix string) (string, error) {
	removeStale(parent, prefix)
	folder, err := os.MkdirTemp(parent, prefix+strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		return "", fmt.Errorf("making a temporary folder: %w; set TMPDIR to a folder with space", err)
	}
	if _, err := lock(folder); err != nil {
		return "", errors.Join(fmt.Errorf("locking %s: %w; set TMPDIR to a folder of a local disk", folder, err), os.Remove(folder))
	}
	return folder, nil
}

// lock fails where folder is no folder, not this user's, or locked. The file is open until the process ends, or the caller
// closes it.
func lock(folder string) (fd int, err error) {
	fd, err = unix.Open(folder, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && int(st.Uid) != os.Geteuid() {
		err = unix.EPERM
	}
	if err == nil {
		err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// removeStale asks for both, the number and the lock: a folder that was just made is not locked yet, and in a container that
// shares the parent the number is another process's or nobody's.
func removeStale(parent, prefix string) {
	left, err := filepath.Glob(filepath.Join(parent, prefix+"*"))
	if err != nil {
		return
	}
	for _, folder := range left {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(folder), prefix), "-")
		if n, err := strconv.Atoi(pid); err != nil || n <= 0 || unix.Kill(n, 0) != unix.ESRCH && !nccltuner.Ended(n) {
			continue
		}
		if fd, err := lock(folder); err == nil {
			_ = os.RemoveAll(folder) // what cannot be deleted stays
			_ = unix.Close(fd)
		}
	}
}

// Keep says where the ranks' logs are, unless they said nothing.
func Keep(folder string) error {
	logs, err := filepath.Glob(filepath.Join(folder, "*", "*.log"))
	if err != nil {
		return err
	}
	said := false
	for _, log := range logs {
		info, err := os.Stat(log)
		said = said || err == nil && info.Size() > 0
	}
	shared, err := filepath.Glob(filepath.Join(folder, "*", "run"))
	for _, dir := range shared {
		err = errors.Join(err, os.RemoveAll(dir)) // large, and of no use without the ranks
	}
	if !said {
		return errors.Join(err, os.RemoveAll(folder))
	}
	return errors.Join(err, fmt.Errorf("the ranks' logs are in %s", folder))
}
