package live

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
)

// Whoever reads a daemon's log may end before it: tee, less, a journal that is restarted. The daemon goes on, and writes its store.
func TestLogsReaderIsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	store := filepath.Join(r.tmp, "store.db")
	cmd := exec.Command(r.build.Daemon, "serve", "--dir", r.daemon.Dir, "--store", store, "--config", os.DevNull)
	cmd.Env, cmd.Stdout, cmd.Stderr = cleanEnvironment(), write, write
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer cmd.Process.Kill() // where the test fails
	if err := write.Close(); err != nil {
		t.Fatal(err)
	}
	r.until("the daemon answers", func(s control.Status) bool { return s.PID == cmd.Process.Pid })
	if err := read.Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := cmd.Process.Signal(syscall.SIGHUP); err != nil { // of which it says something
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			t.Fatalf("the daemon ended with its log's reader: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
	if s := r.status(); s.PID != cmd.Process.Pid || s.StoreState != "ok" {
		t.Errorf("%+v", s)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the daemon ended badly: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the daemon did not end within 10 s")
	}
}
