package forced

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
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
	RemoveStale(parent, ScratchPrefix)
	folder, err = os.MkdirTemp(parent, ScratchPrefix+strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		return "", fmt.Errorf("making a temporary folder: %w; set TMPDIR to a folder with space", err)
	}
	return folder, nil
}

// RemoveStale deletes folders that programs left which were killed: the names go on with the program's process.
func RemoveStale(parent, prefix string) {
	left, err := filepath.Glob(filepath.Join(parent, prefix+"*"))
	if err != nil {
		return
	}
	for _, folder := range left {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(folder), prefix), "-")
		n, err := strconv.Atoi(pid)
		if err == nil && n > 0 && unix.Kill(n, 0) == unix.ESRCH {
			_ = os.RemoveAll(folder) // another user's stays
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
