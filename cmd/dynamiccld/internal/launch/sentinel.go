package launch

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"dynamiccl/nccltuner"

	"golang.org/x/sys/unix"
)

// window is how long after a signal it is decided whether the command has got it by itself; what ended a sentinel longer before a signal
// has nothing to do with it.
const window = 100 * time.Millisecond

// patience is how long after the window a sentinel is waited for that does not sleep: it is being ended, or begins, on a busy machine.
const patience = 2 * time.Second

// mostAlone is how many sentinels may end without a signal to this process until no other is posted: something ends them as they come.
const mostAlone = 8

// sentinel tells signals to the whole process group from signals to this process alone, which Go does not: it is a process
// of the group that does nothing, and a signal to the group ends it. The terminal's keys, kill(0) of timeout(1) and
// launchers that signal whole groups reach the command without us, and must not reach it twice.
type sentinel struct {
	process *exec.Cmd
	hold    *os.File            // it ends when this closes, hence also with us, however we end
	died    chan syscall.Signal // gets what ended it; 0: it ended by itself
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
	if startUnstopped(s.process) != nil {
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

// startUnstopped starts a process that Ctrl-Z does not stop. Go waits in the kernel until it runs its program: stopped before that, as the
// group's newest, it would keep this process from stopping, and the shell from its prompt, for ever.
func startUnstopped(process *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.Sigset_t
	stop := unix.Sigset_t{Val: [len(before.Val)]uint64{1 << (unix.SIGTSTP - 1)}}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &stop, &before); err != nil {
		return err
	}
	defer func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) }() // what it was
	return process.Start()
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
	alone    int // sentinels that ended since the last signal
	got      map[syscall.Signal]time.Time
}

func newRelay(caught <-chan os.Signal) *relay {
	return &relay{caught: caught, sentinel: post(), got: map[syscall.Signal]time.Time{}}
}

// died gets what ended the sentinel, for note; nil: there is none.
func (r *relay) died() <-chan syscall.Signal {
	if r.sentinel == nil {
		return nil
	}
	return r.sentinel.died
}

// note remembers what ended the sentinel, and when, and posts another at once: who has ended that one alone takes it for no later signal.
func (r *relay) note(s syscall.Signal) {
	r.sentinel.hold.Close()
	r.sentinel = nil
	r.got[s] = time.Now()
	if r.alone++; r.alone <= mostAlone {
		r.sentinel = post()
	}
}

// handOn gives the command a signal and all that come within the window, each once, but for those that the whole group
// has got.
func (r *relay) handOn(first os.Signal, process *os.Process) {
	began := time.Now()
	signals := []os.Signal{first}
	for end := time.After(window); end != nil; {
		select {
		case s := <-r.caught:
			signals = append(signals, s)
		case s := <-r.died():
			r.note(s)
		case <-end:
			end = nil
		}
	}
	r.settle()
	r.alone = 0
	got := r.groupGot(began)
	sent := map[os.Signal]bool{unix.SIGPIPE: true} // our own: caught only so that it does not end us
	for _, s := range signals {
		if got[s] {
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

// settle waits until it is known whether a signal has ended the sentinel: on a busy machine it has no CPU to die on within the window, or
// nobody has heard of it yet.
func (r *relay) settle() {
	for deadline := time.Now().Add(patience); r.sentinel != nil; {
		pid := r.sentinel.process.Process.Pid
		select {
		case s := <-r.died():
			r.note(s)
			return
		default:
		}
		if nccltuner.Sleeps(pid) || nccltuner.Stopped(pid) || time.Now().After(deadline) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// groupGot are the signals that have ended sentinels since shortly before a signal came in.
func (r *relay) groupGot(began time.Time) map[os.Signal]bool {
	got := map[os.Signal]bool{}
	for s, at := range r.got {
		got[s] = at.Sub(began) > -window
	}
	clear(r.got)
	return got
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
