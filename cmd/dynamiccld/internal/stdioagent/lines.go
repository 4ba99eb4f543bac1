package stdioagent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
)

// MaxLine bounds a line, its newline not counted: a reset of some 50,000 actions.
const MaxLine = 8 << 20

// line is what was read. Without an error its text is the reader's own copy.
type line struct {
	text    []byte
	tooLong bool  // text is missing; the next line starts after this one's newline
	err     error // no line any more: io.EOF, or why reading failed
}

// readLine reads up to the next newline, or to the end of a last line without one.
func readLine(r *bufio.Reader) line {
	var l line
	seen := false
	for {
		part, err := r.ReadSlice('\n')
		seen = seen || len(part) > 0
		if n := len(part); n > 0 && part[n-1] == '\n' {
			part = part[:n-1]
		}
		if l.tooLong = l.tooLong || len(l.text)+len(part) > MaxLine; l.tooLong {
			l.text = nil
		} else {
			l.text = append(l.text, part...)
		}
		switch {
		case err == nil, err == io.EOF && seen:
			return l
		case !errors.Is(err, bufio.ErrBufferFull):
			return line{err: err}
		}
	}
}

// Serve answers line after line until the input ends, a quit, or ctx is done.
func (a *Agent) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	lines, stop := make(chan line), make(chan struct{})
	defer close(stop)
	// Reading cannot be interrupted, so it goes on beside; when ctx is done while it waits, it ends with the process.
	go func() {
		r := bufio.NewReaderSize(in, 1<<16)
		for {
			l := readLine(r)
			select {
			case lines <- l:
			case <-stop:
				return
			}
			if l.err != nil {
				return
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case l := <-lines:
			if l.err == io.EOF {
				return nil
			}
			if l.err != nil {
				return fmt.Errorf("reading requests: %w", l.err)
			}
			answer, quit := a.safely(l)
			if _, err := out.Write(answer); err != nil {
				return fmt.Errorf("writing an answer: %w", err)
			}
			if quit {
				return nil
			}
		}
	}
}

// safely keeps the process alive through a fault of ours: whoever drives it must not lose everything to one line.
func (a *Agent) safely(l line) (answer []byte, quit bool) {
	defer func() {
		if fault := recover(); fault != nil {
			a.session, quit = nil, false
			answer = encode(errorAnswer{Error: shorten(fmt.Sprintf("internal error: %v; the session is lost: reset again, and please report it", fault))})
		}
	}()
	if l.tooLong {
		return encode(errorAnswer{Error: fmt.Sprintf("a line is longer than %d bytes: it was skipped", MaxLine)}), false
	}
	return a.Answer(l.text)
}
