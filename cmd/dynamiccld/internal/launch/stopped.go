package launch

import (
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"dynamiccl/nccltuner"
)

// A shell shows its prompt again when what it has started stops: when run does, for a program that stops itself knows nothing of run. So
// run stops, too, but only where somebody will let it go on (answersShell): the group, by fg or bg, and the program with it. Elsewhere
// who stops the program lets the program alone go on, and a run that stopped would never hear of its end.

// goneOn is how long a command has to stay stopped until it counts: Ctrl-Z and fg reach command and run one shortly after the other.
const goneOn = 50 * time.Millisecond

// cldStopped is CLD_STOPPED of <signal.h>, as si_code of a child that has stopped.
const cldStopped = 5

// stops are those of a command.
type stops struct {
	command *os.Process
	told    chan struct{} // has one while there were some since it was last read
	mu      sync.Mutex
	taken   int // of the kernel, which tells of each once
}

func stopsOf(command *os.Process) *stops {
	return &stops{command: command, told: make(chan struct{}, 1)}
}

// watch tells of stops until the command has ended; then it is there to be waited for.
func (s *stops) watch() {
	for {
		var info unix.Siginfo
		// Looked at and not taken: its end is for who waits for it.
		err := unix.Waitid(unix.P_PID, s.command.Pid, &info, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || info.Code != cldStopped {
			return
		}
		s.take()
		select {
		case s.told <- struct{}{}:
		default:
		}
	}
}

// take counts a stop, which does not come again; it may have gone on or ended meanwhile.
func (s *stops) take() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = unix.Waitid(unix.P_PID, s.command.Pid, nil, unix.WSTOPPED|unix.WNOHANG, nil)
	s.taken++
}

// count is how often the command has stopped by now; one that nobody has taken yet is among them.
func (s *stops) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	var info unix.Siginfo
	if unix.Waitid(unix.P_PID, s.command.Pid, &info, unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT, nil) == nil && info.Code == cldStopped {
		return s.taken + 1
	}
	return s.taken
}

// follow stops this process as the command is stopped, where a shell waits for that, and lets the command go on once this process does.
func (s *stops) follow() {
	count := s.count()
	if !nccltuner.Stopped(s.command.Pid) || !answersShell() {
		return
	}
	// To this very thread: of a signal to the process the kernel may have another thread take note, and this one would let the command go on
	// before it is stopped itself.
	runtime.LockOSThread()
	err := unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGSTOP)
	runtime.UnlockOSThread()
	// fg and bg let the whole group go on, and the command may have stopped once more since: that is for the shell again.
	if err == nil && nccltuner.Stopped(s.command.Pid) && s.count() == count {
		_ = s.command.Signal(unix.SIGCONT)
	}
}

// answersShell says that this process leads the group that its terminal listens to, and that its parent is outside of that group and of the
// same session: a shell with job control has put it there.
func answersShell() bool {
	self, parent := unix.Getpid(), unix.Getppid()
	if unix.Getpgrp() != self || !inForeground() {
		return false
	}
	ours, err := unix.Getsid(0)
	if err != nil || ours == self {
		return false
	}
	theirs, err := unix.Getsid(parent)
	return err == nil && theirs == ours
}
