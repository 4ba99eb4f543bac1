package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"dynamiccl/cmd/dynamiccld/internal/live"
	"dynamiccl/models"
	"dynamiccl/nccltuner/ranklog"
)

// goodReport is a run in which nothing went wrong.
func goodReport() ranklog.Report {
	rep := ranklog.Report{Ranks: 4, Calls: 100, Compared: 100, Chosen: 50}
	for i := range numPhases {
		rep.Phases = append(rep.Phases, ranklog.Phase{Index: i, Sums: ranklog.Sums{Calls: 25, CostNs: 101, DefaultNs: 100, BestNs: 90}})
	}
	return rep
}

func builtHere(t *testing.T) live.Build {
	t.Helper()
	root, err := filepath.Abs("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	build, err := live.BuildIn(root)
	if err != nil {
		t.Fatal(err)
	}
	return build
}

// shortDir is short, because a socket's path has at most 107 bytes.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dyn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// What ends the demo with an error, hence with an exit code that is not 0, and what does not.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*ranklog.Report)
		want  string // in the error; "": none
	}{
		{"all is well", func(*ranklog.Report) {}, ""},
		{"at the bound", func(r *ranklog.Report) { r.Phases[3].CostNs = 102 }, ""},
		{"one rank disagreed", func(r *ranklog.Report) {
			r.Disagreements, r.Details = 1, []ranklog.Disagreement{{}}
		}, "1 disagreements"},
		{"a phase over the bound", func(r *ranklog.Report) { r.Phases[1].CostNs = 102.1 }, "phase network load"},
		{"the last phase over the bound", func(r *ranklog.Report) { r.Phases[3].CostNs = 200 }, "phase quiet again"},
		{"calls that were not compared", func(r *ranklog.Report) { r.Compared = 99 }, "not complete"},
		{"a log cut short", func(r *ranklog.Report) { r.Truncated = 1 }, "not complete"},
		{"a phase missing", func(r *ranklog.Report) { r.Phases = r.Phases[:3] }, "not complete"},
		{"nothing was tuned", func(r *ranklog.Report) { r.Chosen = 0 }, "nothing was tuned"},
	} {
		rep := goodReport()
		c.spoil(&rep)
		err := judge(jobs[1], rep)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// What is asked for stands in the tables: 8 ranks on NVLink, and the socket tables in the order of the phases.
func TestJobs(t *testing.T) {
	want := []string{"h200x4-socket-2nodes-quiet", "h200x4-socket-2nodes-network-load", "h200x4-socket-2nodes-cpu-load", "h200x4-socket-2nodes-quiet"}
	if len(jobs) != 2 || strings.Join(jobs[1].tables, " ") != strings.Join(want, " ") {
		t.Errorf("jobs %+v", jobs)
	}
	for _, j := range jobs {
		if len(j.tables) != numPhases || len(j.phases) != numPhases {
			t.Errorf("%s has %d tables and %d phases, want %d", j.name, len(j.tables), len(j.phases), numPhases)
		}
	}
}

// Without a terminal: whole lines, no control characters, not more often than plainEvery.
func TestPlainLines(t *testing.T) {
	var out strings.Builder
	v := newView(&out, false, 40)
	for at := range 9 { // one second each
		v.now = time.Duration(at) * time.Second
		if v.now-v.lastLine >= plainEvery {
			v.show("4 communicators", nil)
		}
	}
	v.event("daemon killed")
	v.close()
	if got := strings.Count(out.String(), "4 communicators\n"); got != 3 || !strings.HasSuffix(out.String(), "daemon killed\n") {
		t.Errorf("%d lines in 9 s: %q", got, out.String())
	}
	if i := strings.IndexFunc(out.String(), func(r rune) bool { return r < ' ' && r != '\n' }); i >= 0 {
		t.Errorf("control character at %d of %q", i, out.String())
	}
}

// terminal opens a pseudo-terminal: what a program writes to its inside can be read from the outside.
func terminal(t *testing.T) (outside, inside *os.File) {
	t.Helper()
	outside, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { outside.Close() })
	if err := unix.IoctlSetPointerInt(int(outside.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(outside.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	inside, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { inside.Close() })
	if err := unix.IoctlSetWinsize(int(inside.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 140}); err != nil {
		t.Fatal(err)
	}
	return outside, inside
}

// On a terminal: what is chosen for each size, speed-up, detector and diagnosis, redrawn; a signal ends it with an error.
func TestTerminalView(t *testing.T) {
	build := builtHere(t)
	world := shortDir(t)
	outside, inside := terminal(t)
	cmd := exec.Command(build.Daemon, "demo", "--seconds", "8")
	cmd.Env = append(os.Environ(), "TMPDIR="+world, "TERM=xterm")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inside, inside, inside
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var screen bytes.Buffer
	shows := []string{"choice", "speed-up", "detector", "diagnosis", "All", "KiB", "\x1b["}
	read := make(chan error, 1)
	go func() {
		stopped := false
		for buf := make([]byte, 1<<12); ; {
			n, err := outside.Read(buf) // ends with EIO once no inside is open
			screen.Write(buf[:n])
			if err != nil {
				read <- err
				return
			}
			// A demo that ends before all is there was not stopped, and fails below.
			missing := func(text string) bool { return !strings.Contains(screen.String(), text) }
			if !stopped && !slices.ContainsFunc(shows, missing) && strings.Count(screen.String(), "speed-up") > 1 {
				stopped = true
				_ = cmd.Process.Signal(syscall.SIGTERM)
			}
		}
	}()
	err := cmd.Wait()
	inside.Close()
	<-read
	if err == nil {
		t.Error("a demo that was stopped ended without an error")
	}
	for _, want := range shows {
		if !strings.Contains(screen.String(), want) {
			t.Errorf("the terminal never showed %q:\n%s", want, &screen)
		}
	}
	if n := strings.Count(screen.String(), "speed-up"); n < 2 {
		t.Errorf("drawn %d times in 8 s", n)
	}
}

// killedDemo leaves what a demo leaves that is killed while its ranks run.
func killedDemo(t *testing.T, build live.Build, tmp string) {
	t.Helper()
	cmd := exec.Command(build.Daemon, "demo", "--seconds", "8")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	logs := filepath.Join(tmp, folderPrefix+"*", jobs[0].name+"*")
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if left, _ := filepath.Glob(logs); len(left) > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %s in time", logs)
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // killed
	// A child that it had forked and that has not begun its program yet holds the folder's lock for it.
	folders, _ := filepath.Glob(filepath.Join(tmp, folderPrefix+"*"))
	for _, folder := range folders {
		fd, err := unix.Open(folder, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(10 * time.Second); unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s is locked by nobody that lives", folder)
			}
		}
		_ = unix.Close(fd)
	}
}

// stopper is an output that calls stop with its first line about communicators.
type stopper struct {
	strings.Builder
	stop func()
}

func (s *stopper) Write(p []byte) (int, error) {
	had := strings.Contains(s.String(), "communicators")
	n, err := s.Builder.Write(p)
	if !had && strings.Contains(s.String(), "communicators") {
		s.stop()
	}
	return n, err
}

// A demo that is stopped leaves no file, wherever its environment could have led it, and no process; nor one that was killed
// before it.
func TestStoppedDemoLeavesNothing(t *testing.T) {
	build, world := builtHere(t), shortDir(t)
	for name, folder := range map[string]string{"TMPDIR": "tmp", "HOME": "home", "XDG_RUNTIME_DIR": "run", "XDG_CONFIG_HOME": "config",
		"XDG_STATE_HOME": "state", "XDG_DATA_HOME": "data", "XDG_CACHE_HOME": "cache"} {
		dir := filepath.Join(world, folder)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		t.Setenv(name, dir)
	}
	killedDemo(t, build, filepath.Join(world, "tmp"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := stopper{stop: func() { time.AfterFunc(time.Second, cancel) }}
	err := Run(ctx, Options{Build: build, Learner: models.DefaultLearner, Seconds: 8, Seed: 1, Out: &out})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "stopped before the end") {
		t.Fatalf("a demo that was to be stopped behind its first line ended with %v\n%s", err, &out)
	}
	err = filepath.WalkDir(world, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() || d.IsDir() && strings.HasPrefix(d.Name(), "dynamiccl") {
			t.Errorf("left behind: %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		var alive []string
		for _, file := range lines {
			if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), world) {
				alive = append(alive, file)
			}
		}
		if len(alive) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("processes left: %v", alive)
			break
		}
	}
}
