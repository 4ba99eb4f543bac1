package launch

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"dynamiccl/nccltuner"
)

// A sentinel that was stopped with its group, and that nobody let go on, keeps no run whose command has ended.
func TestStoppedSentinelKeepsNobody(t *testing.T) {
	s := post()
	if s == nil {
		t.Fatal("no sentinel")
	}
	pid := s.process.Process.Pid
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Second); !nccltuner.Stopped(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not stop")
		}
	}
	relieved := make(chan struct{})
	go func() {
		s.relieve()
		close(relieved)
	}()
	select {
	case <-relieved:
	case <-time.After(5 * time.Second):
		_ = unix.Kill(pid, unix.SIGKILL)
		t.Fatal("the run waits for its sentinel for ever")
	}
}
