package rulefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"dynamiccl/actions"
)

// Write writes rules as CSV to path, whole or not at all: NCCL may be reading the file that it replaces.
func Write(path string, rules []actions.Rule) (err error) {
	var text bytes.Buffer
	if err := actions.WriteNCCLCSV(&text, rules); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		var why *fs.PathError
		if errors.As(err, &why) {
			err = why.Err // the path in it is that of the temporary file
		}
		return fmt.Errorf("writing %s: %w; name a file in a directory that exists and that you may write", path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	// CreateTemp makes files for the owner only; rules are no secret and the program that reads them may be another user's.
	_, err = tmp.Write(text.Bytes())
	if err = errors.Join(err, tmp.Chmod(0o644), tmp.Sync(), tmp.Close()); err != nil {
		return fmt.Errorf("writing %s: %w; is the disk full?", path, err)
	}
	if err = os.Rename(tmp.Name(), path); err != nil {
		return fmt.Errorf("writing %s: %w; name a file, not a directory", path, err)
	}
	return nil
}

// Read reads CSV whole and checks every rule. limit bounds the bytes.
func Read(name string, r io.Reader, limit int64) (text string, rules []actions.Rule, err error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return "", nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if int64(len(data)) > limit {
		return "", nil, fmt.Errorf("%s is larger than %d bytes; split it", name, limit)
	}
	rules, err = actions.ReadNCCLCSV(bytes.NewReader(data))
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w; nothing was imported, correct the line and try again", name, err)
	}
	if len(rules) == 0 {
		return "", nil, fmt.Errorf("%s holds no rules; is it the right file?", name)
	}
	return string(data), rules, nil
}
