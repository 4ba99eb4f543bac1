package control

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"dynamiccl/nccltuner"
)

// SocketName is the control socket's name in the directory.
const SocketName = nccltuner.SocketName

// maxSocketPath is sizeof(sockaddr_un.sun_path) less the final zero (unix(7)).
const maxSocketPath = 107

// maxConns bounds how many clients are served at once; more wait in the kernel's backlog.
const maxConns = 32

// ErrLive says that another daemon answers on the socket.
var ErrLive = errors.New("another daemon serves this directory")

// Listen opens the control socket of dir, which the caller has checked and locked (nccltuner.OpenDir). The socket of a
// dead daemon is replaced, a live one is refused.
func Listen(dir string) (net.Listener, error) {
	path := filepath.Join(dir, SocketName)
	if err := CheckDir(dir); err != nil {
		return nil, err
	}
	if err := clearStale(path); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("opening control socket %s: %w; look at `dynamiccld doctor`", path, err)
	}
	l.SetUnlinkOnClose(false)
	info, err := os.Lstat(path)
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("protecting control socket %s: %w; is somebody else cleaning this directory?", path, err)
	}
	return &listener{UnixListener: l, path: path, info: info, slots: make(chan struct{}, maxConns), done: make(chan struct{})}, nil
}

// CheckDir refuses a directory whose control socket would have too long a path. Who makes the directory asks first: what is refused is
// not to be left behind.
func CheckDir(dir string) error { return checkPath(filepath.Join(dir, SocketName)) }

func checkPath(path string) error {
	if len(path) > maxSocketPath {
		return fmt.Errorf("control socket %s: path is %d bytes long, at most %d; name a shorter directory with --dir or DYNAMICCL_DIR", path, len(path), maxSocketPath)
	}
	return nil
}

// clearStale removes a socket that nobody answers on. Anything that is not a socket is not ours to remove.
func clearStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("looking at control socket %s: %w", path, err)
	case info.Mode()&fs.ModeSocket == 0:
		return fmt.Errorf("%s is in the way and is no socket; remove it", path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		conn.Close()
		return fmt.Errorf("%s: %w; stop it first, or name another directory with --dir", path, ErrLive)
	case errors.Is(err, unix.ECONNREFUSED):
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("removing the socket of a dead daemon: %w; remove %s", err, path)
		}
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	// For example a full backlog: somebody is alive behind it.
	return fmt.Errorf("%s: %w (%v); stop it first, or name another directory with --dir", path, ErrLive, err)
}

// listener bounds how many connections are open and removes only its own socket.
type listener struct {
	*net.UnixListener
	path  string
	info  fs.FileInfo
	slots chan struct{}
	done  chan struct{}
	once  sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.done:
		return nil, net.ErrClosed
	}
	conn, err := l.AcceptUnix()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &peerConn{UnixConn: conn, release: func() { <-l.slots }}, nil
}

func (l *listener) Close() error {
	err := error(net.ErrClosed)
	l.once.Do(func() {
		close(l.done)
		err = l.UnixListener.Close()
		if now, statErr := os.Lstat(l.path); statErr == nil && os.SameFile(now, l.info) {
			err = errors.Join(err, os.Remove(l.path))
		}
	})
	return err
}

// peerConn frees its slot once, however often it is closed.
type peerConn struct {
	*net.UnixConn
	release func()
	once    sync.Once
}

func (c *peerConn) Close() error {
	c.once.Do(c.release)
	return c.UnixConn.Close()
}

// peer is who is at the other end, by the kernel's word.
func (c *peerConn) peer() (*unix.Ucred, error) { return peerOf(c) }

func peerOf(c syscall.Conn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, err
	}
	return cred, credErr
}
