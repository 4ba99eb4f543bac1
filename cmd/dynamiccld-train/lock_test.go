package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A second run on the policy or on the checkpoint is refused, and hears of the first. One that was killed keeps nobody
// out, and what it left is gone after the next.
func TestSecondRunIsRefused(t *testing.T) {
	w := newWorld(t)
	p := startProgram(t, "--synthetic", "1", "--updates", "1000", "--out", w.path("p"), "--checkpoint", w.path("c"))
	p.until("1000 updates")
	for _, line := range []string{"--out $DIR/p --checkpoint $DIR/other", "--out $DIR/./other --checkpoint $DIR/./c", "--out $DIR/p --checkpoint $DIR/c --resume"} {
		_, stderr, code := w.run("--synthetic 1 " + line)
		if code != exitFailed || !strings.Contains(stderr, fmt.Sprintf("another run writes it (process %d): wait for it or stop it", p.cmd.Process.Pid)) {
			t.Errorf("%s: exit %d: %s", line, code, stderr)
		}
	}
	if w.has(".other.lock") {
		t.Error("a refused run left a lock")
	}
	p.signal(syscall.SIGKILL)
	p.wait()
	w.must("--synthetic 1 --updates 300 --out $DIR/p --checkpoint $DIR/c")
	if left, err := os.ReadDir(w.dir); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A lock file that the run before removed while this one waited to lock it is worth nothing: nobody else sees it.
func TestLockOfARemovedFile(t *testing.T) {
	path := newWorld(t).path("p")
	tries := 0
	unlock, err := lock(path, func(fd, how int) error {
		if tries++; tries == 1 {
			if err := os.Remove(lockName(path)); err != nil {
				t.Error(err)
			}
		}
		return unix.Flock(fd, how)
	})
	if err != nil || tries != 2 {
		t.Fatalf("%d tries: %v", tries, err)
	}
	if _, err := lock(path, unix.Flock); !errors.Is(err, errOtherRun) {
		t.Errorf("a second lock: %v", err)
	}
	// Whoever removes the file by hand lets another run in: unlocking must leave that one's file alone.
	if err := os.Remove(lockName(path)); err != nil {
		t.Fatal(err)
	}
	again, err := lock(path, unix.Flock)
	if err != nil {
		t.Fatal(err)
	}
	if err := unlock(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(lockName(path)); err != nil {
		t.Error("the other run's lock file is removed")
	}
	if err := again(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(lockName(path)); err == nil {
		t.Error("a lock file is left")
	}
}

// Some shared file systems have no locks: that costs the check, not the training.
func TestNoLocks(t *testing.T) {
	w := newWorld(t)
	if _, err := lock(w.path("p"), func(int, int) error { return unix.ENOSYS }); !errors.Is(err, errNoLocks) || w.has(".p.lock") {
		t.Errorf("%v", err)
	}
	if _, err := lock(w.path("p"), func(int, int) error { return unix.EBADF }); !errors.Is(err, unix.EBADF) {
		t.Errorf("%v", err)
	}
}
