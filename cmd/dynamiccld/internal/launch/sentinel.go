package launch

import (
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// window is how long after a signal it is decided whether the command has got it by itself.
const window = 100 * time.Millisecond

// sentinel tells signals to the whole process group from signals to this process alone, which Go does not: it is a process
// of the group that does nothing, and a signal to the group ends it. The terminal's keys, kill(0) of timeout(1) and
// launchers that signal whole groups reach the command without us, and must not reach it twice.
type sentinel struct {
	process *exec.Cmd
	hold    *os.File            // it ends when this closes, hence also with us, however we end
	died    chan syscall.Signal // gets what ended it
}

// post starts one; nil where there is no cat(1).
func post() *sentinel {
	cat, err := lookPath("cat")
	if err != nil {
		return nil
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil
	}
	defer read.Close()
	s := &sentinel{process: exec.Command(cat), hold: write, died: make(chan syscall.Signal, 1)}
	s.process.Stdin = read
	if s.process.Start() != nil {
		write.Close()
		return nil
	}
	go func() {
		_ = s.process.Wait() // how it ended is all that counts
		status, _ := s.process.ProcessState.Sys().(syscall.WaitStatus)
		s.died <- status.Signal()
	}()
	return s
}

// relieve ends it.
func (s *sentinel) relieve() {
	if s != nil {
		s.hold.Close()
		_ = s.process.Process.Kill() // stopped, it would not hear of that; it may have ended
		<-s.died
	}
}

// relay hands on what comes in from caught.
type relay struct {
	caught   <-chan os.Signal
	sentinel *sentinel
}

// handOn gives the command a signal and all that come within the window, each once, but for those that the whole group
// has got.
func (r *relay) handOn(first os.Signal, process *os.Process) {
	signals := []os.Signal{first}
	for end := time.After(window); ; {
		select {
		case s := <-r.caught:
			signals = append(signals, s)
			continue
		case <-end:
		}
		break
	}
	ended := r.groupGot()
	sent := map[os.Signal]bool{unix.SIGPIPE: true} // our own: caught only so that it does not end us
	for _, s := range signals {
		if ended == s {
			return // and so did what came with it
		}
	}
	for _, s := range signals {
		if !sent[s] && (r.sentinel != nil || !fromTerminal(s)) {
			_ = process.Signal(s) // it may have ended by now
		}
		sent[s] = true
	}
}

// groupGot is the signal that has ended the sentinel, and posts another; 0: none has.
func (r *relay) groupGot() syscall.Signal {
	if r.sentinel == nil {
		return 0
	}
	select {
	case s := <-r.sentinel.died:
		r.sentinel.hold.Close()
		r.sentinel = post()
		return s
	default:
		return 0
	}
}

// fromTerminal is the guess without a sentinel: a terminal sends its signals to the whole foreground group.
func fromTerminal(s os.Signal) bool {
	return (s == unix.SIGINT || s == unix.SIGQUIT || s == unix.SIGHUP) && inForeground()
}

// inForeground says that this process's group is the one that its terminal sends signals to.
func inForeground() bool {
	tty, err := unix.Open("/dev/tty", unix.O_RDONLY|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false // no terminal
	}
	defer unix.Close(tty)
	group, err := unix.IoctlGetInt(tty, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
