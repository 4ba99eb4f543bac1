package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"dynamiccl/agents"
	"dynamiccl/cmd/internal/wholefile"
)

// room is how much a run writes at most at a time, several times over: weights are half a megabyte, a checkpoint is five
// times that.
const room = 16 << 20

// replaceable refuses to write a policy over a file that is none, as where a table's or a script's name was given for it.
func replaceable(path string) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w; name another", path, wholefile.Cause(err))
	}
	defer file.Close()
	begin := make([]byte, 64)
	n, err := file.Read(begin)
	if n == 0 { // empty, or what writable has to say something about
		return nil
	}
	if _, _, decoded := agents.DecodePolicy(begin[:n]); err == nil && errors.Is(decoded, agents.ErrForeignPolicy) {
		return usage{fmt.Errorf("--out would overwrite %s, which is %w: name another file, or remove it", path, agents.ErrForeignPolicy)}
	}
	return nil
}

// writable finds out now, not after 40 minutes, whether a file can be written: its folder is there, lets us write and has
// room, and no folder has its name.
func writable(path string, need uint64) error {
	file, err := wholefile.Target(path)
	if err != nil {
		return err
	}
	dir := filepath.Dir(file)
	tmp, err := os.CreateTemp(dir, wholefile.Temporary(file))
	if err != nil {
		return fmt.Errorf("writing %s: %w; name a file in a folder that exists and that you may write", path, wholefile.Cause(err))
	}
	_, err = tmp.Write(make([]byte, 4096)) // quotas show only here
	if err = errors.Join(err, tmp.Sync(), tmp.Close(), os.Remove(tmp.Name())); err != nil {
		return fmt.Errorf("writing %s: %w; is the disk full?", path, err)
	}
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return fmt.Errorf("writing %s: asking for free space: %w", path, err)
	}
	if free := s.Bavail * uint64(s.Bsize); free < need {
		return fmt.Errorf("writing %s: %d KiB free, %d KiB wanted: %w; free some space or name another disk", path, free>>10, need>>10, unix.ENOSPC)
	}
	return nil
}
