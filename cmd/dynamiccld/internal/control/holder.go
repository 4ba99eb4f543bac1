package control

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"dynamiccl/nccltuner"
)

// Holder is which process has a directory's daemon lock, as it wrote into it, without creating or keeping the lock; "": nobody.
func Holder(dir string) string {
	f, err := os.Open(filepath.Join(dir, nccltuner.DaemonLockName))
	if err != nil {
		return ""
	}
	defer f.Close()
	if !errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK) {
		return ""
	}
	said := make([]byte, 16)
	n, _ := f.Read(said) // without a pid it is held all the same
	pid, _, _ := strings.Cut(string(said[:n]), "\n")
	return strings.TrimSpace("process " + pid)
}
