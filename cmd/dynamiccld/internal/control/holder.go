package control

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"dynamiccl/nccltuner"
)

// Holder says whether a process has a directory's daemon lock, without creating or keeping the lock, and which, as it wrote into it; 0: it
// has not said so yet.
func Holder(dir string) (pid int, held bool) {
	f, err := os.Open(filepath.Join(dir, nccltuner.DaemonLockName))
	if err != nil {
		return 0, false
	}
	defer f.Close()
	if !errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK) {
		return 0, false
	}
	said := make([]byte, 16)
	n, _ := f.Read(said) // without a pid it is held all the same
	text, _, _ := strings.Cut(string(said[:n]), "\n")
	pid, _ = strconv.Atoi(text)
	return pid, true
}
