package service

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// lossyLines is how many lines wait for a reader of the log that does not read, and lossyClose how long the end of the daemon does.
const (
	lossyLines = 1024
	lossyClose = time.Second
)

// Lossy never waits for who reads a log: a pager that was left open, a container's log driver that hangs. What does not fit is dropped,
// and how many lines that were is said when there is room again.
type Lossy struct {
	lines   chan []byte
	dropped atomic.Int64
	done    chan struct{}
	mu      sync.Mutex // closing
	closed  bool
}

// NewLossy writes to w in a goroutine, until Close.
func NewLossy(w io.Writer) *Lossy {
	l := &Lossy{lines: make(chan []byte, lossyLines), done: make(chan struct{})}
	go func() {
		defer close(l.done)
		tell := func() {
			if n := l.dropped.Swap(0); n > 0 {
				fmt.Fprintf(w, "%d lines of log were dropped about here: nobody read it\n", n)
			}
		}
		for line := range l.lines {
			tell()
			_, _ = w.Write(line) // nobody is there to tell
		}
		tell()
	}()
	return l
}

// Write takes a line, or drops it.
func (l *Lossy) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return len(p), nil
	}
	select {
	case l.lines <- bytes.Clone(p):
	default:
		l.dropped.Add(1)
	}
	return len(p), nil
}

// Close writes what waits, but for a reader that still does not read.
func (l *Lossy) Close() {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.lines)
	}
	l.mu.Unlock()
	select {
	case <-l.done:
	case <-time.After(lossyClose):
	}
}
