// Package csvfile goes on in CSV files of ours, which several processes may write at once, and in no other files.
package csvfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"dynamiccl/cmd/dynamiccld/internal/filelock"
)

// maxRow is more than any row is long.
const maxRow = 4096

// Who opens a file while others do waits so long for them.
const (
	openWithin = time.Second
	lookEvery  = 5 * time.Millisecond
)

// Open opens a file for rows behind those that it has, each to be written whole. One that is new or empty gets its columns, and headed is
// false where that could not be, as on a full disk, or where it is a device. A file of another kind, or with other columns, is left alone;
// a row at the end that a full disk has cut off is taken away.
func Open(path string, columns []string, mode fs.FileMode) (f *os.File, headed bool, err error) {
	if f, err = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_RDWR, mode); err != nil {
		return nil, false, err
	}
	if headed, err = begin(f, strings.Join(columns, ",")+"\n"); err != nil {
		return nil, false, errors.Join(err, f.Close())
	}
	return f, headed, nil
}

func begin(f *os.File, head string) (headed bool, err error) {
	info, err := f.Stat()
	switch {
	case err != nil:
		return false, err
	case info.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) != 0:
		return false, errors.New("it is a pipe, and who reads it could hold the writer up")
	case !info.Mode().IsRegular():
		return false, nil
	}
	// All that write the file share its lock for as long as they do. Who has it alone knows that nobody is in the middle of a row.
	for end := time.Now().Add(openWithin); time.Now().Before(end); time.Sleep(lookEvery) {
		if filelock.Take(f, unix.LOCK_EX) {
			if err := goOn(f, head); err != nil {
				return false, err
			}
		}
		if filelock.Take(f, unix.LOCK_SH) {
			size, err := headOf(f, head)
			return size > 0, err
		}
	}
	return false, errors.New("another process has it locked")
}

// headOf refuses a file that does not begin with head, unless it is empty.
func headOf(f *os.File, head string) (size int64, err error) {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return 0, err
	}
	has := make([]byte, len(head))
	n, err := f.ReadAt(has, 0)
	if err != nil && err != io.EOF {
		return 0, err
	}
	if string(has[:n]) != head {
		return 0, fmt.Errorf("it begins with %.60q and not with the columns of this version (%.30q...), so nothing is appended to it", has[:n], head)
	}
	return info.Size(), nil
}

// goOn has the file end with a whole row, or its head, where this process alone writes it.
func goOn(f *os.File, head string) error {
	size, err := headOf(f, head)
	if err != nil {
		return err
	}
	if size == 0 {
		if _, err := f.WriteString(head); err != nil {
			return f.Truncate(0) // half a head would be another file's
		}
		return nil
	}
	from := max(int64(len(head)), size-maxRow)
	end := make([]byte, size-from)
	if _, err := f.ReadAt(end, from); err != nil && err != io.EOF {
		return err
	}
	if cut := bytes.LastIndexByte(end, '\n') + 1; cut < len(end) {
		return f.Truncate(from + int64(cut))
	}
	return nil
}
