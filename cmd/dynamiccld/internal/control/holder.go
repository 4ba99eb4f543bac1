package control

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"dynamiccl/cmd/dynamiccld/internal/filelock"
	"dynamiccl/nccltuner"
)

// Holder says whether a process has a directory's daemon lock, without creating or keeping the lock, and which, as it wrote into it.
func Holder(dir string) (who nccltuner.Holder, held bool) {
	// A pipe of that name must not hold up who asks.
	f, err := os.OpenFile(filepath.Join(dir, nccltuner.DaemonLockName), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return who, false
	}
	defer f.Close()
	if filelock.Take(f, unix.LOCK_SH) {
		return who, false
	}
	said := make([]byte, 64)
	n, _ := f.Read(said) // without a pid it is held all the same
	return nccltuner.ParseHolder(string(said[:n])), true
}
