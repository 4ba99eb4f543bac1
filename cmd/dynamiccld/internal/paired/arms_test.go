package paired

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/launch"
	"dynamiccl/nccltuner"
)

// A daemon of an arm's own that somebody has stopped would stay for ever, and make its folder anew once it is let go on.
func TestStoppedDaemonIsEnded(t *testing.T) {
	other := exec.Command("sleep", "60")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- other.Wait() }()
	d := &launch.Daemon{Status: control.Status{PID: other.Process.Pid}}
	drop(d)
	select {
	case err := <-ended:
		t.Fatalf("one that runs was ended: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if err := other.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); !nccltuner.Stopped(d.Status.PID) && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	drop(d)
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("it is still there")
		_ = other.Process.Kill()
	}
}
