package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"dynamiccl/cmd/dynamiccld/internal/units"
)

// Exit codes of a command that did not start, as shells and env(1) have them.
const (
	CodeNotFound      = 127
	CodeNotExecutable = 126
)

// forwarded are the signals that somebody may send to `run` and means for the command: those that end a process which does not catch them,
// as batch systems (SIGXCPU), watchdogs and people who want a traceback (SIGABRT) send them. Of the others SIGKILL cannot be caught,
// SIGPIPE and SIGXFSZ may come of what run itself writes, and SIGPROF is Go's own.
var forwarded = func() []os.Signal {
	all := []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGILL, unix.SIGTRAP, unix.SIGABRT, unix.SIGBUS, unix.SIGFPE, unix.SIGUSR1,
		unix.SIGSEGV, unix.SIGUSR2, unix.SIGALRM, unix.SIGTERM, unix.SIGSTKFLT, unix.SIGXCPU, unix.SIGVTALRM, unix.SIGIO, unix.SIGPWR, unix.SIGSYS}
	// The last of the real-time signals is SIGRTMAX; of those before the first, 32 to 34, Go catches none (runtime/sigtab_linux_generic.go).
	for s := syscall.Signal(35); s <= 64; s++ {
		all = append(all, s)
	}
	return all
}()

// End is how a command ended.
type End struct {
	Code   int            // exit code; of a signal 128 and its number
	Signal syscall.Signal // that ended it; 0: none
	Err    error          // it was not started; Code says how
}

// Command is a program of the user's.
type Command struct {
	Args    []string
	Environ []string
	// Plain is the environment without what Environ adds, for where that has no room in what the kernel takes; nil: there is none.
	// TookPlain is called when the program has started with it.
	Plain     []string
	TookPlain func()
	// Streams are the program's standard input, output and error: the very files, never copies of what goes through.
	Streams [3]*os.File
}

// Signals catches what is to be forwarded, from before the command starts. Signals that were ignored when this process
// began stay ignored, here and in the command, as nohup and a shell's & want it.
func Signals() (caught chan os.Signal, release func()) {
	stayIgnored()
	caught = make(chan os.Signal, 16)
	for _, s := range forwarded {
		if !signal.Ignored(s) {
			signal.Notify(caught, s)
		}
	}
	// Our own messages may go into a closed pipe: that must not end this process before the command. Caught and not
	// ignored, because the command would inherit an ignored one.
	if !signal.Ignored(unix.SIGPIPE) {
		signal.Notify(caught, unix.SIGPIPE)
	}
	return caught, func() { signal.Stop(caught) }
}

// Patience ends with the first signal for a command that has not started yet, which gets it all the same. Until release, which ends it, too.
func Patience(caught chan os.Signal) (patience context.Context, release func()) {
	patience, end := context.WithCancel(context.Background())
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		for {
			select {
			case s := <-caught:
				if s == unix.SIGPIPE { // our own
					continue
				}
				select {
				case caught <- s:
				default: // it has as many others
				}
				end()
				return
			case <-patience.Done():
				return
			}
		}
	}()
	return patience, func() { end(); <-looked }
}

// Run starts the command and waits for its end. Everything that comes in from caught meanwhile is handed on.
func (c Command) Run(caught <-chan os.Signal) End {
	process, err := c.start()
	if err != nil {
		return notStarted(c.Args[0], err)
	}
	type waited struct {
		state *os.ProcessState
		err   error
	}
	ended, stops := make(chan waited, 1), stopsOf(process)
	go func() {
		stops.watch()
		state, err := process.Wait()
		ended <- waited{state, err}
	}()
	r := newRelay(caught)
	defer func() { r.sentinel.relieve() }()
	var still <-chan time.Time
	for {
		select {
		case <-stops.told:
			still = time.After(goneOn)
		case <-still:
			stops.follow()
		case s := <-caught:
			r.handOn(s, process)
		case s := <-r.died():
			r.note(s)
		case w := <-ended:
			if w.err != nil {
				return End{Code: 1, Err: fmt.Errorf("waiting for %s: %w", c.Args[0], w.err)}
			}
			status, _ := w.state.Sys().(syscall.WaitStatus)
			if status.Signaled() {
				return End{Code: 128 + int(status.Signal()), Signal: status.Signal()}
			}
			return End{Code: w.state.ExitCode()}
		}
	}
}

func (c Command) start() (*os.Process, error) {
	process, err := c.startIn(c.Environ)
	if errors.Is(err, unix.E2BIG) && c.Plain != nil {
		if process, err = c.startIn(c.Plain); err == nil {
			c.TookPlain()
		}
	}
	return process, err
}

func (c Command) startIn(environ []string) (*os.Process, error) {
	path, err := lookPath(c.Args[0])
	if err != nil && !errors.Is(err, exec.ErrDot) { // a shell runs what PATH finds in the working directory, too
		return nil, err
	}
	attr := &os.ProcAttr{Env: environ, Files: c.Streams[:]}
	process, err := os.StartProcess(path, c.Args, attr)
	if errors.Is(err, fs.ErrNotExist) { // path itself was there
		return nil, errNoInterpreter
	}
	if errors.Is(err, unix.ENOEXEC) && !isBinary(path) {
		// A script without a first line that names its interpreter: execvp(3) and shells run it with sh.
		const shell = "/bin/sh"
		return os.StartProcess(shell, slices.Concat([]string{shell, path}, c.Args[1:]), attr)
	}
	return process, err
}

// lookPath finds a program as execvp(3) does, by which env(1) and other launchers start theirs: without PATH, as behind env -i, it looks
// where the system's own programs are.
func lookPath(name string) (path string, err error) {
	path, err = exec.LookPath(name)
	if _, set := os.LookupEnv("PATH"); set || !errors.Is(err, exec.ErrNotFound) || strings.ContainsRune(name, '/') {
		return path, err
	}
	for _, dir := range []string{"/bin/", "/usr/bin/"} {
		if found, failed := exec.LookPath(dir + name); failed == nil {
			return found, nil
		}
	}
	return path, err
}

// isBinary says as bash does that a shell must not run a file: a program of another architecture, say, of which it would take bytes for
// commands.
func isBinary(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	start := make([]byte, 128)
	n, _ := f.Read(start) // an empty script is one
	line, _, _ := bytes.Cut(start[:n], []byte("\n"))
	return bytes.IndexByte(line, 0) >= 0
}

var errNoInterpreter = errors.New("no interpreter")

func notStarted(name string, err error) End {
	switch {
	case errors.Is(err, errNoInterpreter):
		return End{Code: CodeNotFound, Err: fmt.Errorf("%s: the interpreter that its first line names, or its loader, is not there; correct that line (`head -1 %s`), or install it", name, units.Word(name))}
	case errors.Is(err, unix.ENOEXEC):
		return End{Code: CodeNotExecutable, Err: fmt.Errorf("%s: no program of this machine (%w); it may be one of another architecture, or damaged", name, err)}
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return End{Code: CodeNotFound, Err: fmt.Errorf("%s: command not found; give its path, or put its folder into PATH", name)}
	case errors.Is(err, fs.ErrPermission):
		return End{Code: CodeNotExecutable, Err: fmt.Errorf("%s: not executable (%w); chmod +x it, or name its interpreter", name, err)}
	case errors.Is(err, unix.E2BIG):
		return End{Code: CodeNotExecutable, Err: fmt.Errorf("%s: its arguments and variables are too long (%w); shorten them, or have it read a file", name, err)}
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOMEM):
		return End{Code: CodeNotExecutable, Err: fmt.Errorf("%s: cannot be started: %w; raise the limit (`ulimit -a`; of a container or job its own), or end other programs", name, err)}
	}
	return End{Code: CodeNotExecutable, Err: fmt.Errorf("%s: cannot be started: %w; name a program", name, err)}
}
