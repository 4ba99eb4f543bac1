package launch

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// withhold has programs that are started until release inherit nothing but their streams of what this process was given. A daemon
// outlives the command, and with its copy of a lock (flock 9), or of a pipe at whose end a launcher reads, so would these. The command
// gets them all: it starts after release. Everything that Go has opened is withheld from the start.
func withhold() (release func()) {
	var held []uintptr
	entries, _ := os.ReadDir("/proc/self/fd") // what cannot be listed is inherited
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= unix.Stderr {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0) // the listing itself is closed by now
		if err != nil || flags&unix.FD_CLOEXEC != 0 {
			continue
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, flags|unix.FD_CLOEXEC); err == nil {
			held = append(held, uintptr(fd))
		}
	}
	return func() {
		for _, fd := range held {
			_, _ = unix.FcntlInt(fd, unix.F_SETFD, 0) // it is there still, and closed on exec is the one flag
		}
	}
}
