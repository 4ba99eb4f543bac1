package sweep

import (
	"io"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Both kinds work until their input ends, and end with it.
func TestMakeLoad(t *testing.T) {
	for _, kind := range []string{LoadNetwork, LoadCPU} {
		read, write := io.Pipe()
		done := make(chan error, 1)
		before := cpuTime(t)
		go func() { done <- MakeLoad(kind, 2, read) }()
		for deadline := time.Now().Add(20 * time.Second); cpuTime(t)-before < 100*time.Millisecond; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: no load", kind)
			}
		}
		select {
		case err := <-done:
			t.Fatalf("%s ended by itself: %v", kind, err)
		default:
		}
		if err := write.Close(); err != nil {
			t.Error(err)
		}
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("%s: %v", kind, err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s does not end", kind)
		}
	}
	if err := MakeLoad(LoadCopy, 1, strings.NewReader("")); err == nil || !strings.Contains(err.Error(), "want network or cpu") {
		t.Errorf("copy: %v", err)
	}
	if err := MakeLoad(LoadCPU, 0, strings.NewReader("")); err == nil {
		t.Error("load of no threads")
	}
}
