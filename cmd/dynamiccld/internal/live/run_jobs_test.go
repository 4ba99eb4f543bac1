package live

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"dynamiccl/nccltuner"
)

// shell is an interactive bash at a terminal.
type shell struct {
	*runRig
	terminal *os.File
	said     lockedBuffer
	seen     int // of what was said
	pid      int
}

func (r *runRig) shell() *shell {
	r.Helper()
	if _, err := exec.LookPath("bash"); err != nil {
		r.Skip(err)
	}
	master, slave := openTerminal(r.T)
	s := &shell{runRig: r, terminal: master}
	p := r.command("bash", "--norc", "--noediting", "-i")
	p.Env = append(p.Env, "PS1=ready$ ", "R="+r.build.Daemon, "HISTFILE=")
	p.Stdin, p.Stdout, p.Stderr = slave, slave, slave
	p.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	p.begin()
	s.pid = p.Process.Pid
	go func() { _, _ = io.Copy(&s.said, master) }() // until the terminal is closed
	r.Cleanup(func() {
		_ = p.Process.Kill()
		p.end()
		if r.Failed() {
			r.Logf("the shell said %q", s.said.String())
		}
	})
	s.hears("ready$ ")
	return s
}

// types a line.
func (s *shell) types(line string) {
	s.Helper()
	if _, err := s.terminal.Write([]byte(line)); err != nil {
		s.Fatal(err)
	}
}

// hears waits for words, one after the other, in what was said since the last it heard.
func (s *shell) hears(words ...string) {
	s.Helper()
	for _, w := range words {
		s.wait(fmt.Sprintf("%q", w), func() bool { return strings.Contains(s.said.String()[s.seen:], w) })
		s.seen += strings.Index(s.said.String()[s.seen:], w) + len(w)
	}
}

// inFront says which group has the terminal.
func (s *shell) inFront() (group int) {
	s.Helper()
	connection, err := s.terminal.SyscallConn()
	if err == nil {
		err = errors.Join(connection.Control(func(fd uintptr) { group, err = unix.IoctlGetInt(int(fd), unix.TIOCGPGRP) }), err)
	}
	if err != nil {
		s.Fatal(err)
	}
	return group
}

// A command that stops itself gives the shell its prompt back, under run as without, and goes on with fg, as often as it likes. Ctrl-Z, which
// reaches run by itself, is as it was.
func TestRunStopsWithItsCommand(t *testing.T) {
	t.Parallel()
	for stop, goOn := range map[string]string{"kill -STOP $$": "bg", "kill -TSTP $$": "kill -CONT $(jobs -p)"} { // the latter to run alone
		s := newRunRig(t).shell()
		s.types("$R run -q -- sh -c '" + stop + "; echo ba''ck; " + stop + "; echo aga''in; exit 3'\n")
		s.hears("Stopped", "ready$ ")
		s.types("fg\n")
		s.hears("back", "Stopped", "ready$ ")
		s.types(goOn + "\n")
		s.hears("again")
		s.types("wait %1; echo co''de $?\n")
		s.hears("code 3")
	}
	s := newRunRig(t).shell()
	s.types("$R run -q -- sh -c 'echo u''p $$; read line; echo go''t $line'\n")
	s.hears("up ")
	var command int
	s.wait("the command's number", func() bool {
		number, _, whole := strings.Cut(s.said.String()[s.seen:], "\r\n")
		_, err := fmt.Sscan(number, &command)
		return whole && err == nil
	})
	for range 3 {
		s.types("\x1a")
		s.hears("Stopped", "ready$ ")
		s.wait("the command to stop", func() bool { return nccltuner.Stopped(command) }) // before that it may take what is typed
		s.types("fg\n")
		s.wait("the job to go on", func() bool { // before that what stops it is lost, as with any command
			group := s.inFront()
			return group != s.pid && !nccltuner.Stopped(group) && !nccltuner.Stopped(command)
		})
	}
	s.types("it\n")
	s.hears("got it", "ready$ ")
}

// Where no shell would let run go on, it does not stop: who has stopped the command lets that alone go on.
func TestRunWithoutAShellDoesNotStop(t *testing.T) {
	t.Parallel()
	for what, terminal := range map[string]bool{"no terminal": false, "alone at a terminal": true} {
		r := newRunRig(t)
		p := r.run("-q", "--", "sh", "-c", "echo $$; kill -STOP $$; exit 3")
		p.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if terminal {
			_, slave := openTerminal(t)
			p.Stdin, p.SysProcAttr.Setctty = slave, true
		}
		p.begin()
		var pid int
		r.wait("the command to stop", func() bool {
			_, err := fmt.Sscan(p.out.String(), &pid)
			return err == nil && nccltuner.Stopped(pid)
		})
		time.Sleep(300 * time.Millisecond) // run has looked whether it is to stop
		if nccltuner.Stopped(p.Process.Pid) {
			t.Errorf("%s: run has stopped", what)
			_ = unix.Kill(p.Process.Pid, unix.SIGCONT)
		}
		if err := unix.Kill(pid, unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if code := p.end(); code != 3 {
			t.Errorf("%s: exit code %d, want 3", what, code)
		}
	}
}
