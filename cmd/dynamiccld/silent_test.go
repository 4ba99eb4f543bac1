package main

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"dynamiccl/cmd/dynamiccld/internal/control"
)

// deaf has a socket of a daemon that takes no connection, and gives what fills its queue.
func (w *world) deaf() (fill func()) {
	w.t.Helper()
	at := &unix.SockaddrUnix{Name: filepath.Join(w.dir, control.SocketName)}
	socket := func() int {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	listener := socket()
	if err := errors.Join(unix.Bind(listener, at), unix.Listen(listener, 8)); err != nil {
		w.t.Fatal(err)
	}
	return func() {
		var err error
		for err == nil {
			err = unix.Connect(socket(), at)
		}
		if err != unix.EAGAIN {
			w.t.Fatal(err)
		}
	}
}

// A daemon that has the socket and does not answer is to a script as one that is not there: stopped, without time, or with more
// connections than it takes.
func TestSilentDaemon(t *testing.T) {
	w := newWorld(t)
	fill := w.deaf()
	for _, what := range []string{"silent", "its queue is full"} {
		if what != "silent" {
			fill()
		}
		for _, line := range []string{"status", "status --json", "table", "why AllReduce 64K", "export", "links"} {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			out, code := w.runWithin(ctx, line, "")
			cancel()
			if code != exitNoDaemon || !strings.Contains(out, "does not answer") || !strings.Contains(out, w.dir) || strings.Count(out, "\n") != 1 {
				t.Errorf("%s: %s: exit code %d: %s", what, line, code, out)
			}
		}
	}
}
