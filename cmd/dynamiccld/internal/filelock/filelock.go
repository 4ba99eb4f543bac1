// Package filelock takes locks on files that several processes of ours may open.
package filelock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Take says that nobody keeps this process from the lock (unix.LOCK_EX or unix.LOCK_SH), which it has from then on until it closes the file, and never waits.
// On a file system without locks there is one who uses a file, as far as anybody knows.
func Take(f *os.File, how int) bool {
	return !errors.Is(unix.Flock(int(f.Fd()), how|unix.LOCK_NB), unix.EWOULDBLOCK)
}
