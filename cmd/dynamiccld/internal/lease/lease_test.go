package lease

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"dynamiccl/nccltuner"
)

// helper makes a copy of this test program join a directory until it is killed.
const helper = "DYN_TEST_JOIN"

func TestMain(m *testing.M) {
	if dir := os.Getenv(helper); dir != "" {
		_, err := Join(context.Background(), dir)
		fmt.Println(err)
		select {} // the parent kills us
	}
	goleak.VerifyTestMain(m)
}

func join(t *testing.T, dir string) *Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	l, err := Join(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func alone(t *testing.T, dir string) bool {
	t.Helper()
	l, err := TryEnd(dir)
	if err != nil {
		t.Fatal(err)
	}
	if l != nil {
		l.Release()
	}
	return l != nil
}

func TestDaemonEndsAfterTheLast(t *testing.T) {
	dir := t.TempDir()
	if !alone(t, dir) {
		t.Error("nobody joined and it is not alone")
	}
	a, b := join(t, dir), join(t, dir)
	if alone(t, dir) || a.Last() {
		t.Error("two have joined: neither is alone nor last")
	}
	a.Release()
	if alone(t, dir) {
		t.Error("one is left")
	}
	if !b.Last() {
		t.Error("the last one is not told so")
	}
	b.Release()
	if !alone(t, dir) {
		t.Error("all have left")
	}
}

// Who comes while a daemon is ending waits for its end.
func TestJoinWaitsForAnEnd(t *testing.T) {
	dir := t.TempDir()
	ending, err := TryEnd(dir)
	if err != nil || ending == nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := Join(ctx, dir); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "fuser") {
		t.Errorf("joined while a daemon is ending: %v", err)
	}
	go func() { time.Sleep(20 * time.Millisecond); ending.Release() }()
	join(t, dir).Release()
}

// A process that is killed has left.
func TestKilledRunHasLeft(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helper+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "<nil>\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if alone(t, dir) {
		t.Error("the other process has joined")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // reports the signal
	if !alone(t, dir) {
		t.Error("the other process is dead")
	}
}

func TestStartingIsOnesAlone(t *testing.T) {
	dir := t.TempDir()
	first, err := Starting(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := Starting(ctx, dir); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("two start a daemon: %v", err)
	}
	first.Release()
	again, err := Starting(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	again.Release()
}

// A lock file that is a link must not be followed.
func TestNoLinkIsFollowed(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), filepath.Join(dir, nccltuner.RunsLockName)); err != nil {
		t.Fatal(err)
	}
	if _, err := Join(context.Background(), dir); err == nil || !strings.Contains(err.Error(), nccltuner.DirVariable) {
		t.Errorf("got %v", err)
	}
	if _, err := TryEnd(filepath.Join(dir, "missing")); err == nil {
		t.Error("a lock in a directory that does not exist")
	}
}

func TestNotOpenedNamesFileAndRemedy(t *testing.T) {
	for errno, want := range map[error]string{
		unix.EROFS:  "open /a/runs.lock: read-only file system; set DYNAMICCL_DIR to a directory that can be written",
		unix.EACCES: "open /a/runs.lock: permission denied; set DYNAMICCL_DIR to a directory that can be written",
		unix.ENOSPC: "open /a/runs.lock: no space left on device; free some space, or set DYNAMICCL_DIR to a directory with more",
		unix.ELOOP:  "open /a/runs.lock: too many levels of symbolic links; remove what is there, or set DYNAMICCL_DIR to another directory",
	} {
		err := NotOpened(&fs.PathError{Op: "open", Path: "/a/runs.lock", Err: errno})
		if !errors.Is(err, errno) || err.Error() != want {
			t.Errorf("%v: %q, want %q", errno, err, want)
		}
	}
}
