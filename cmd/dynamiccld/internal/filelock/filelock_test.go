package filelock

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTake(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	one, two := open(), open()
	if !Take(one, unix.LOCK_SH) || !Take(two, unix.LOCK_SH) || Take(two, unix.LOCK_EX) {
		t.Error("shared by both, and then had by one alone")
	}
	if one.Close(); !Take(two, unix.LOCK_EX) || Take(open(), unix.LOCK_SH) {
		t.Error("had by one alone, and shared")
	}
	pipe, end, err := os.Pipe() // what has no locks
	if err != nil {
		t.Fatal(err)
	}
	end.Close()
	pipe.Close()
	if !Take(pipe, unix.LOCK_EX) {
		t.Error("what cannot be locked is not somebody else's")
	}
}
