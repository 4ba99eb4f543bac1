package service

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// A pipe that is full and not read holds nobody up; what it could not take is counted, and all else is there in order.
func TestLogWaitsForNobody(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	l := NewLossy(w)
	const lines = 20_000 // beyond what pipe and queue hold
	began := time.Now()
	for i := range lines {
		fmt.Fprintf(l, "line %d\n", i)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Fatalf("%d lines that nobody reads took %v", lines, took)
	}
	read := make(chan string)
	go func() {
		var all strings.Builder
		buf := make([]byte, 1<<16)
		for {
			n, err := r.Read(buf)
			all.Write(buf[:n])
			if err != nil {
				read <- all.String()
				return
			}
		}
	}()
	later := 0
	for ; l.dropped.Load() > 0; later++ { // somebody reads: there is room again
		fmt.Fprintln(l, "later")
		time.Sleep(time.Millisecond)
	}
	l.Close()
	fmt.Fprintln(l, "too late")
	w.Close()
	said, last, dropped := 0, -1, 0
	for _, line := range strings.Split(strings.TrimSpace(<-read), "\n") {
		var n int
		switch {
		case line == "later":
			said++
		case strings.Contains(line, "were dropped about here"):
			if _, err := fmt.Sscanf(line, "%d lines", &n); err != nil {
				t.Fatal(line)
			}
			dropped += n
		default:
			if _, err := fmt.Sscanf(line, "line %d", &n); err != nil || n <= last {
				t.Fatalf("%q behind line %d", line, last)
			}
			last = n
			said++
		}
	}
	if said+dropped != lines+later || dropped == 0 || said < lossyLines {
		t.Errorf("%d lines of %d written and %d said to be dropped", said, lines+later, dropped)
	}
}

// The end of a daemon does not wait for such a reader.
func TestLogEndsUnread(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	l := NewLossy(w)
	for range 5000 {
		fmt.Fprintln(l, strings.Repeat("x", 100))
	}
	began := time.Now()
	l.Close()
	if took := time.Since(began); took > 5*lossyClose {
		t.Errorf("the log took %v to close", took)
	}
	r.Close() // ends the goroutine's write
	w.Close()
	<-l.done
}
