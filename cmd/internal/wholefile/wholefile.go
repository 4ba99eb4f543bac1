// Package wholefile writes files whole or not at all, for all programs here.
package wholefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Write replaces what path names by data: readers see the old content or the new, and the new one is on the disk before it takes the
// name.
func Write(path string, data []byte) (err error) {
	if path, err = Target(path); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), Temporary(path))
	if err != nil {
		return fmt.Errorf("writing %s: %w; name a file in a folder that exists and that you may write", path, Cause(err))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	// CreateTemp makes files for the owner only; none of these is a secret, and who reads them may be another user.
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Chmod(0o644), tmp.Sync(), tmp.Close()); err != nil {
		return fmt.Errorf("writing %s: %w; is the disk full?", path, err)
	}
	if err = os.Rename(tmp.Name(), path); err != nil {
		return fmt.Errorf("writing %s: %w", path, Cause(err))
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	_ = errors.Join(dir.Sync(), dir.Close()) // the name too, where the file system can do that
	return nil
}

// Target is the plain file that Write would replace, behind all links. A rename also takes the place of a device, a pipe or a link to
// them: /dev/null would be a plain file from then on, for every program of the machine.
func Target(path string) (string, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, nil
	}
	if err != nil {
		return "", fmt.Errorf("writing %s: %w; name a file in a folder that exists and that you may write", path, Cause(err))
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("writing %s: it is not a plain file (%s); name another", path, info.Mode().Type())
	}
	return filepath.EvalSymlinks(path)
}

// Temporary is the pattern of a file's temporary names.
func Temporary(path string) string { return "." + filepath.Base(path) + "-*" }

// Cause leaves out the path of a temporary file, which says nothing to people.
func Cause(err error) error {
	path, link := new(fs.PathError), new(os.LinkError)
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}
