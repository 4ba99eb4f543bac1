package sweep

import (
	"io"
	"os"
	"path/filepath"
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

// A load that ends by itself, since the host has no room for it or somebody killed it, is said: times without it are none under it.
func TestLoadThatEndsIsSaid(t *testing.T) {
	program := func(script string) string {
		path := filepath.Join(t.TempDir(), "load")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if _, err := StartLoad(t.Context(), program("echo dial: too many open files >&2; exit 1"), LoadNetwork, 0); err == nil ||
		!strings.Contains(err.Error(), "load network has ended by itself (exit status 1)") || !strings.Contains(err.Error(), "too many open files") {
		t.Errorf("ended at once: %v", err)
	}
	over := filepath.Join(t.TempDir(), "go")
	stop, err := StartLoad(t.Context(), program("while [ ! -e "+over+" ]; do sleep 0.01; done"), LoadCPU, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(over, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	time.Sleep(settle)
	if err := stop(); err == nil || !strings.Contains(err.Error(), "load cpu has ended by itself (exit status 0)") || !strings.Contains(err.Error(), "it said nothing") {
		t.Errorf("ended while it was measured: %v", err)
	}
	if stop, err = StartLoad(t.Context(), program("exec sleep 60"), LoadCPU, 1); err != nil || stop() != nil {
		t.Errorf("a load that stays: %v, or its end", err)
	}
}
