package launch

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"dynamiccl/nccltuner"
)

// A pipe in the place of the daemon's log, which nobody reads, keeps no command from starting.
func TestLogThatIsAPipe(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	if err := unix.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, nccltuner.DaemonLogName), 0o600); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := Need(t.Context(), Host{Dir: dir, Executable: "/bin/false"})
		ended <- err
	}()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), nccltuner.DaemonLogName) {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("the command waits for a reader of the pipe")
	}
}
