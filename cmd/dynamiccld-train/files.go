package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// room is how much a run writes at most at a time, several times over: weights are half a megabyte, a checkpoint is five
// times that.
const room = 16 << 20

// writable finds out now, not after 40 minutes, whether a file can be written: its folder is there, lets us write and has
// room, and no folder has its name.
func writable(path string, need uint64) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("writing %s: it is not a plain file (%s); name another", path, info.Mode().Type())
	}
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, temporary(path))
	if err != nil {
		return fmt.Errorf("writing %s: %w; name a file in a folder that exists and that you may write", path, cause(err))
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

func temporary(path string) string { return "." + filepath.Base(path) + "-*" }

// cause leaves out the path of a temporary file, which says nothing to people.
func cause(err error) error {
	path, link := new(fs.PathError), new(os.LinkError)
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}

// replace writes a file whole or not at all, on the disk before it takes the name.
func replace(path string, data []byte) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), temporary(path))
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, cause(err))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Chmod(0o644), tmp.Sync(), tmp.Close()); err != nil {
		return fmt.Errorf("writing %s: %w; is the disk full?", path, err)
	}
	if err = os.Rename(tmp.Name(), path); err != nil {
		return fmt.Errorf("writing %s: %w", path, cause(err))
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return errors.Join(dir.Sync(), dir.Close()) // the name too
}
