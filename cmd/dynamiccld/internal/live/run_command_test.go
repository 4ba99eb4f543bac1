package live

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A command ends under run as it ends without: as a shell sees it, and as a parent that looks at signals does.
func TestRunEndsAsItsCommand(t *testing.T) {
	t.Parallel()
	r := newRunRig(t)
	script := filepath.Join(r.tmp, "no-interpreter")
	if err := os.WriteFile(script, []byte("exit 9\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		command []string
		code    int
		signal  syscall.Signal
	}{
		{[]string{"true"}, 0, 0},
		{[]string{"sh", "-c", "exit 3"}, 3, 0},
		{[]string{"sh", "-c", "exit 255"}, 255, 0},
		{[]string{"sh", "-c", "kill -TERM $$"}, -1, unix.SIGTERM},
		{[]string{"sh", "-c", "kill -INT $$"}, -1, unix.SIGINT},
		{[]string{"sh", "-c", "kill -KILL $$"}, -1, unix.SIGKILL},
		{[]string{"sh", "-c", "kill -SEGV $$"}, -1, unix.SIGSEGV},
		{[]string{"sh", "-c", "kill -QUIT $$"}, -1, unix.SIGQUIT},
		{[]string{"sh", "-c", "kill -PIPE $$"}, -1, unix.SIGPIPE},
		{[]string{script}, 9, 0},
		{[]string{"no-such-command"}, 127, 0},
		{[]string{"/no/such/command"}, 127, 0},
		{[]string{"/etc/passwd"}, 126, 0},
		{[]string{r.tmp}, 126, 0},
	} {
		p := r.run(append([]string{"--"}, tc.command...)...)
		code := p.all()
		status := p.ProcessState.Sys().(syscall.WaitStatus)
		if signal := status.Signal(); code != tc.code || tc.signal != 0 && signal != tc.signal {
			t.Errorf("%v: exit code %d, signal %v; want %d, %v\n%s", tc.command, code, signal, tc.code, tc.signal, p.err.String())
		}
		if strings.Contains(p.err.String(), "goroutine") {
			t.Errorf("%v: run crashed\n%s", tc.command, p.err.String())
		}
	}
	shell := r.command("sh", "-c", r.build.Daemon+" run -q -- sh -c 'kill -TERM $$'; echo $?")
	if shell.all(); shell.out.String() != "143\n" {
		t.Errorf("a shell sees %q, want 143", shell.out.String())
	}
	r.noDaemon()
}

// Whatever signal run gets, its command gets once.
func TestRunForwardsSignals(t *testing.T) {
	t.Parallel()
	r := newRunRig(t)
	for _, s := range counted {
		if signal.Ignored(s) { // under nohup, say, and so by all that is started here
			t.Logf("%v is ignored where this test runs", s)
			continue
		}
		p := r.counter()
		p.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal, wherever the test runs
		if got := p.signalled(func() { _ = p.Process.Signal(s) }); got != name(s)+"\n" {
			t.Errorf("%v: the command got %q", s, got)
		}
		if code := p.end(); code != 7 {
			t.Errorf("%v: exit code %d, want the command's own 7", s, code)
		}
	}
}

// counterVariable makes this test program a command that says each signal that it gets, and ends half a second after the
// first: time for another. A shell would not do: it takes two signals that come close together for one.
const counterVariable = "DYN_TEST_COUNT_SIGNALS"

func TestMain(m *testing.M) {
	if os.Getenv(counterVariable) != "" {
		countSignals()
	}
	os.Exit(m.Run())
}

// counted are signals that people, batch systems and watchdogs send; the last two are the first and the last real-time signal that Go catches.
var counted = []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGABRT, unix.SIGXCPU, unix.SIGPWR,
	unix.SIGVTALRM, unix.SIGIO, unix.SIGSEGV, 35, 64}

func name(s syscall.Signal) string { return cmp.Or(unix.SignalName(s), s.String()) }

func countSignals() {
	got := make(chan os.Signal, 16)
	for _, s := range counted {
		signal.Notify(got, s)
	}
	fmt.Println("up")
	end := time.After(20 * time.Second)
	for first := true; ; first = false {
		select {
		case s := <-got:
			fmt.Println(name(s.(syscall.Signal)))
			if first {
				end = time.After(500 * time.Millisecond)
			}
		case <-end:
			os.Exit(7)
		}
	}
}

// counter prepares a run of countSignals.
func (r *runRig) counter() *proc {
	p := r.run("-q", "--", os.Args[0])
	p.Env = append(p.Env, counterVariable+"=1")
	return p
}

// signalled starts the command, sends when it is up, and gives all that it then says.
func (p *proc) signalled(send func()) string {
	p.t.Helper()
	p.Stdout = nil
	stdout, err := p.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	p.begin()
	lines := bufio.NewReader(stdout)
	if line, err := lines.ReadString('\n'); err != nil || line != "up\n" {
		p.t.Fatalf("the command says %q, %v", line, err)
	}
	send()
	rest, err := io.ReadAll(lines)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(rest)
}

// Ctrl-C at a terminal reaches run and command alike; run must not hand it on. What somebody sends to run alone it must.
func TestRunAtATerminal(t *testing.T) {
	for what, send := range map[string]func(p *proc, terminal *os.File) error{
		"Ctrl-C":          func(_ *proc, terminal *os.File) error { _, err := terminal.Write([]byte{3}); return err },
		"a signal to run": func(p *proc, _ *os.File) error { return p.Process.Signal(unix.SIGINT) },
		"two signals to run": func(p *proc, _ *os.File) error {
			_ = p.Process.Signal(unix.SIGINT)
			return p.Process.Signal(unix.SIGINT)
		},
	} {
		r := newRunRig(t)
		master, slave := openTerminal(t)
		p := r.counter()
		p.Stdin = slave
		p.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		got := p.signalled(func() {
			if err := send(p, master); err != nil {
				t.Error(err)
			}
		})
		if got != "SIGINT\n" {
			t.Errorf("after %s the command got %q", what, got)
		}
		if code := p.end(); code != 7 {
			t.Errorf("exit code %d, want 7", code)
		}
	}
}

// Launchers signal whole groups, timeout(1) its child and then the group: once is enough for the command.
func TestRunInASignalledGroup(t *testing.T) {
	for what, send := range map[string]func(pid int) error{
		"the group":         func(pid int) error { return unix.Kill(-pid, unix.SIGTERM) },
		"run and its group": func(pid int) error { _ = unix.Kill(pid, unix.SIGTERM); return unix.Kill(-pid, unix.SIGTERM) },
	} {
		r := newRunRig(t)
		p := r.counter()
		p.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		got := p.signalled(func() {
			if err := send(p.Process.Pid); err != nil {
				t.Error(err)
			}
		})
		if got != "SIGTERM\n" {
			t.Errorf("signal to %s: the command got %q", what, got)
		}
		if code := p.end(); code != 7 {
			t.Errorf("exit code %d, want 7", code)
		}
	}
}

func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

// Streams are the command's own: bytes of any kind, the very files, also those above standard error.
func TestRunLeavesStreamsAlone(t *testing.T) {
	r := newRunRig(t)
	garbage := make([]byte, 1<<20)
	random := rand.NewChaCha8([32]byte{5})
	_, _ = random.Read(garbage)
	p := r.run("--", "cat")
	p.Stdin = bytes.NewReader(garbage)
	var out bytes.Buffer
	p.Stdout = &out
	if code := p.all(); code != 0 || !bytes.Equal(out.Bytes(), garbage) {
		t.Errorf("exit code %d, %d of %d bytes came through the same", code, out.Len(), len(garbage))
	}

	extra, err := os.Open(filepath.Join(r.tmp, "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer extra.Close()
	list := r.command("sh", "-c", `ls -l /proc/self/fd | sed -n 's/.* \([0-9]* -> .*\)/\1/p'`)
	under := r.run("-q", "--", "sh", "-c", `ls -l /proc/self/fd | sed -n 's/.* \([0-9]* -> .*\)/\1/p'`)
	for _, p := range []*proc{list, under} {
		p.ExtraFiles = []*os.File{extra}
		if code := p.all(); code != 0 {
			t.Fatal(p.err.String())
		}
	}
	if a, b := numbers(list.out.String()), numbers(under.out.String()); a != b || !strings.Contains(under.out.String(), "3 -> "+extra.Name()) {
		t.Errorf("open files without run:\n%s\nunder run:\n%s", list.out.String(), under.out.String())
	}

	// Nobody reads our standard error any more: the command's end is what counts.
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	reader.Close()
	deaf := r.run("--", "sh", "-c", "exit 4")
	deaf.Stderr = writer
	deaf.begin()
	writer.Close()
	if code := deaf.end(); code != 4 {
		t.Errorf("exit code %d with a closed standard error, want 4", code)
	}
}

// numbers keeps the numbers of a list of open files: pipes differ from process to process.
func numbers(list string) string {
	var all []string
	for _, line := range strings.Split(list, "\n") {
		n, _, _ := strings.Cut(line, " ")
		all = append(all, n)
	}
	return strings.Join(all, " ")
}

// nohup, a shell's & and systemd (SIGPIPE) ignore signals for the command; what is ignored or blocked stays so.
func TestRunKeepsIgnoredSignals(t *testing.T) {
	r := newRunRig(t)
	const look = "grep -E '^Sig(Ign|Blk)' /proc/self/status"
	for _, before := range []string{"", "trap '' HUP;", "trap '' INT QUIT;", "trap '' INT;", "trap '' QUIT;", "trap '' PIPE;", "trap '' TERM USR1 XCPU TSTP 64;"} {
		var said [2]string
		for i, line := range []string{before + "exec " + look, before + "exec " + r.build.Daemon + " run -q -- " + look} {
			p := r.command("sh", "-c", line)
			if code := p.all(); code != 0 {
				t.Fatalf("%s: %s", line, p.err.String())
			}
			said[i] = p.out.String()
		}
		if said[0] != said[1] || !strings.Contains(said[0], "SigIgn") {
			t.Errorf("after %q the command has\n%swithout run and\n%sunder it", before, said[0], said[1])
		}
	}
}

// Signals that come once the command has ended do not keep the daemon from writing down what was learned.
func TestRunIsHurried(t *testing.T) {
	r := newRunRig(t)
	p := r.run("--", "sh", "-c", "echo $$")
	p.begin()
	pid := 0
	r.wait("the command's process id", func() bool { _, err := fmt.Sscan(p.out.String(), &pid); return err == nil })
	r.wait("the command's end", func() bool { return unix.Kill(pid, 0) == unix.ESRCH })
	for range 5 {
		_ = p.Process.Signal(unix.SIGTERM) // run may have ended
	}
	if code := p.end(); code != 0 {
		t.Errorf("exit code %d, want the command's 0", code)
	}
	r.noDaemon()
}
