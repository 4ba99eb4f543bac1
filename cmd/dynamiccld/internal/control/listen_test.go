package control_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/fakebackend"
)

// staleSocket leaves what a daemon that was killed leaves.
func staleSocket(t *testing.T, dir string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, control.SocketName), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
}

func TestListen(t *testing.T) {
	dir := tempDir(t)
	path := filepath.Join(dir, control.SocketName)
	staleSocket(t, dir)
	l, err := control.Listen(dir)
	if err != nil {
		t.Fatalf("over a dead daemon's socket: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := control.Listen(dir); !errors.Is(err, control.ErrLive) {
		t.Errorf("beside a live daemon: %v", err)
	}
	// Somebody replaced the socket: it is not ours to remove any more.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	staleSocket(t, dir)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("another daemon's socket was removed: %v", err)
	}
	if err := l.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed twice: %v", err)
	}
	os.Remove(path)
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := control.Listen(dir); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("a file in the way: %v", err)
	}
	if _, err := control.Listen("/tmp/" + strings.Repeat("x", 120)); err == nil || !strings.Contains(err.Error(), "shorter directory") {
		t.Errorf("long path: %v", err)
	}
}

func TestSocketIsRemovedAtTheEnd(t *testing.T) {
	dir, _, stop := start(t, fakebackend.Empty(), nil)
	stop()
	if _, err := os.Lstat(filepath.Join(dir, control.SocketName)); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
