package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http/httptrace"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"dynamiccl/nccltuner"
)

// dialEvery is how often a full socket is tried again.
const dialEvery = 20 * time.Millisecond

// SilentError says that a daemon has the control socket and did not answer in time.
type SilentError struct {
	PID  int // 0: not known, for example because it lives in another container
	path string
}

func (e *SilentError) Error() string { return e.Text() + "; " + e.Remedy() }

// Unwrap makes it what every question is that ran out of time.
func (e *SilentError) Unwrap() error { return context.DeadlineExceeded }

// Text says what is wrong.
func (e *SilentError) Text() string {
	switch {
	case e.PID == 0:
		return "the daemon on " + e.path + " does not answer"
	case nccltuner.Stopped(e.PID):
		return fmt.Sprintf("daemon %d is stopped and does not answer on %s", e.PID, e.path)
	}
	return fmt.Sprintf("daemon %d does not answer on %s", e.PID, e.path)
}

// Remedy says what can be done. To end the daemon harms no rank.
func (e *SilentError) Remedy() string {
	switch {
	case e.PID == 0:
		return "look at its log, or restart it"
	case nccltuner.Stopped(e.PID):
		return fmt.Sprintf("let it go on with `kill -CONT %d`", e.PID)
	}
	return fmt.Sprintf("look at its log, or end it with `kill -9 %d`", e.PID)
}

// listenerOf is the process that listens on the socket, which answers for it also while the process is stopped; 0: not known.
func listenerOf(c net.Conn) int {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return 0
	}
	cred, err := peerOf(socket)
	if err != nil {
		return 0
	}
	return int(cred.Pid)
}

// silence is a question while there is no answer. A busy daemon is waited for, and whoever asked is told once what for; one that is
// stopped answers nobody however long that takes.
type silence struct {
	client  *Client
	pid     atomic.Int64 // that listens; 0: not known, or no connection yet
	stopped atomic.Bool  // the question was given up for that
}

func (s *silence) connected(got httptrace.GotConnInfo) { s.pid.Store(int64(listenerOf(got.Conn))) }

// daemon is its process: that which listens, or before there is a connection that which holds the directory; 0: not known.
func (s *silence) daemon() int {
	if pid := int(s.pid.Load()); pid != 0 {
		return pid
	}
	if who, held := Holder(filepath.Dir(s.client.path)); held && !who.Elsewhere {
		return who.PID
	}
	return 0
}

func (s *silence) err() *SilentError { return &SilentError{s.daemon(), s.client.path} }

// ends says that an error comes from nothing but silence.
func (s *silence) ends(err error) bool {
	return err != nil && (s.stopped.Load() || errors.Is(err, context.DeadlineExceeded))
}

// dial connects. A daemon whose queue of connections is full does not answer, for now or at all, and a connection to it is not waited for
// by the kernel.
func dial(ctx context.Context, path string) (net.Conn, error) {
	for {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "unix", path)
		if !errors.Is(err, unix.EAGAIN) {
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(dialEvery):
		}
	}
}

// attend looks after the question until answered is called.
func (s *silence) attend(ctx context.Context) (question context.Context, answered func()) {
	question, end := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(s.client.lookEvery)
		defer ticker.Stop()
		for told := false; ; told = true {
			select {
			case <-question.Done():
				return
			case <-ticker.C:
			}
			if pid := s.daemon(); pid != 0 && nccltuner.Stopped(pid) {
				s.stopped.Store(true)
				end()
				return
			}
			if !told {
				s.client.waiting(fmt.Sprintf("%s; waiting for %v at most", s.err().Text(), clientTimeout))
			}
		}
	}()
	return question, func() { end(); <-done }
}
