package launch

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Raise ends this process by a signal, as the command before it, so that whoever waits sees the same end. It returns when
// that fails: exit with 128 and the number then. Go's own way (signal.Reset) would print goroutines for some signals.
func Raise(s syscall.Signal) {
	// The command has left its core already; ours would replace it.
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	var byDefault [4]uint64 // struct sigaction of the kernel: handler SIG_DFL, no flags, empty mask (rt_sigaction(2))
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0)
	if errno != 0 && s != unix.SIGKILL {
		return
	}
	if unix.Kill(unix.Getpid(), s) == nil {
		time.Sleep(time.Second) // another thread may be the one to die
	}
}
