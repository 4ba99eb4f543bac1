package tracefile

import (
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A pipe that nobody writes into is no table, and nobody waits for one.
func TestReadPipe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pipe.csv")
	if err := unix.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := Read(file)
		read <- err
	}()
	select {
	case err := <-read:
		if err == nil {
			t.Error("no error")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for a writer")
	}
}
