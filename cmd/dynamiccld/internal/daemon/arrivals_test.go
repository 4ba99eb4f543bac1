package daemon

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestArrivals(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := t.TempDir()
	came := make(chan struct{}, 1)
	stop, err := arrivals(dir, func() {
		select {
		case came <- struct{}{}:
		default:
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	told := func(within time.Duration) bool {
		select {
		case <-came:
			return true
		case <-time.After(within):
			return false
		}
	}
	write := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"store.db", "daemon.log", "notes.txt"} {
		write(name)
	}
	if told(100 * time.Millisecond) {
		t.Error("files that are no rank's are told of")
	}
	for _, name := range []string{"ring-3-4.shm", "comm-0000000000000005.shm"} {
		if write(name); !told(5 * time.Second) {
			t.Errorf("%s came, and nothing is told", name)
		}
	}
	for i := range 1000 {
		write("ring-9-" + string(rune('a'+i%26)) + ".shm")
	}
	if err := os.Rename(filepath.Join(dir, "notes.txt"), filepath.Join(dir, "comm-1.shm")); err != nil {
		t.Fatal(err)
	}
	if !told(5 * time.Second) {
		t.Error("many came, and nothing is told")
	}
}

func TestArrivalsOfNoDirectory(t *testing.T) {
	defer goleak.VerifyNone(t)
	stop, err := arrivals(filepath.Join(t.TempDir(), "nowhere"), func() { t.Error("something is told") })
	stop()
	if err == nil {
		t.Error("no error")
	}
}
