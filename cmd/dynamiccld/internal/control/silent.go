package control

import (
	"context"
	"fmt"
	"net"
	"syscall"

	"dynamiccl/nccltuner"
)

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
