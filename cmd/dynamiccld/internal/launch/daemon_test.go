package launch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/lease"
	"dynamiccl/nccltuner"
)

// A pipe in the place of a file, which nobody reads or writes, keeps no command from starting.
func TestFileThatIsAPipe(t *testing.T) {
	for name, says := range map[string]string{
		nccltuner.DaemonLogName:  nccltuner.DaemonLogName + ": no such device or address; remove what is there",
		nccltuner.DaemonLockName: "the daemon did not start",
	} {
		dir := filepath.Join(t.TempDir(), "run")
		if err := unix.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := Need(t.Context(), Host{Dir: dir, Executable: "/bin/false"})
			ended <- err
		}()
		select {
		case err := <-ended:
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("the command waits for somebody at the other end of the pipe %s", name)
		}
	}
}

// On a full disk the log has no line.
func TestDaemonThatSaysNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	_, err := Need(t.Context(), Host{Dir: dir, Executable: "/bin/false"})
	for _, want := range []string{"did not start: ", filepath.Join(dir, nccltuner.DaemonLogName) + " does not say why", "df ", "dynamiccld serve"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: no %q", err, want)
		}
	}
}

// A directory that has no room for the socket's name in a socket's path is refused, and not left behind.
func TestLongDirectoryIsNotMade(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("x", 120))
	if _, err := Need(t.Context(), Host{Dir: dir, Executable: "/bin/false"}); err == nil || !strings.Contains(err.Error(), "name a shorter directory with --dir or DYNAMICCL_DIR") {
		t.Error(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it was made: %v", err)
	}
}

// A daemon that takes long to start holds the command up for a moment only, and is left to it: whoever kills what is slow once
// is never tuned.
func TestDaemonThatStartsSlowly(t *testing.T) {
	dir := t.TempDir()
	slow := filepath.Join(dir, "slow")
	if err := os.WriteFile(slow, []byte("#!/bin/sh\nexec sleep 60\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	d, err := Need(t.Context(), Host{Dir: filepath.Join(dir, "run"), Executable: slow})
	if took := time.Since(began); err != nil || took >= endWithin { // as long as for one that ends
		t.Fatalf("%v after %v", err, took)
	}
	defer func() { _ = unix.Kill(d.Status.PID, unix.SIGKILL) }()
	if !errors.Is(d.Silent, context.DeadlineExceeded) || !strings.Contains(d.Silent.Error(), nccltuner.DaemonLogName) || !d.Started || !d.Alive() {
		t.Errorf("%+v", d)
	}
	began = time.Now()
	if !d.End(t.Context(), false) || time.Since(began) >= endWithin {
		t.Error("the end waits for a daemon that never answered")
	}
}

// A command that ends while its daemon is still waited for had none, which is what the end of its run says.
func TestCommandThatEndsBeforeItsDaemonIsThere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	if err := unix.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	starting, err := lease.Starting(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer starting.Release()
	d, err := Need(t.Context(), Host{Dir: dir, Executable: "/bin/false"})
	if err != nil || d.Late == nil {
		t.Fatalf("%+v, %v", d, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), startWithin)
	defer cancel()
	time.AfterFunc(200*time.Millisecond, cancel)
	if err := d.Await(ctx); !errors.Is(err, context.Canceled) || d.Late == nil {
		t.Errorf("%v, late: %v", err, d.Late)
	}
	if !d.End(t.Context(), true) {
		t.Error("its end waits for a daemon")
	}
}

// A daemon that another run had started belongs to process 1 once that has ended, which in many containers asks no child how it ended:
// the daemon has ended all the same, and nobody waits for its number.
func TestDaemonThatNobodyAskedHasEnded(t *testing.T) {
	process, err := os.StartProcess("/bin/sleep", []string{"sleep", "60"}, &os.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{Status: control.Status{PID: process.Pid, UntilUnused: true}}
	if d.lease, err = lease.Join(t.Context(), t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if !d.Alive() {
		t.Error("it lives, and is said to have ended")
	}
	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = process.Wait() }() // not before: it is a zombie until then
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
	defer cancel()
	if !d.End(ctx, false) || d.Alive() {
		t.Error("it has ended, and is said to take long to")
	}
}
