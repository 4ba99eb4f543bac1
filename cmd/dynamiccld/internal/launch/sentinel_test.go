package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
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

// Ctrl-Z does not stop a sentinel, and who posts one is stopped by it as before: were the sentinel stopped before it runs its program, Go would
// wait for that in the kernel, and a shell for this process, for ever.
func TestCtrlZDoesNotStopASentinel(t *testing.T) {
	blocked := func(path string) (set string) {
		status, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a thread may end
			t.Fatal(err)
		}
		for line := range strings.Lines(string(status)) {
			if after, is := strings.CutPrefix(line, "SigBlk:"); is {
				set = strings.TrimSpace(after)
			}
		}
		return set
	}
	s := post()
	if s == nil {
		t.Fatal("no sentinel")
	}
	defer s.relieve()
	const stop = "0000000000080000" // SIGTSTP alone
	if set := blocked(fmt.Sprintf("/proc/%d/status", s.process.Process.Pid)); set != stop {
		t.Errorf("it has %s blocked, want %s", set, stop)
	}
	threads, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(threads) == 0 {
		t.Fatal(threads, err)
	}
	for _, path := range threads {
		if set := blocked(path); strings.HasSuffix(set, stop[8:]) {
			t.Errorf("%s: %s is still blocked", path, set)
		}
	}
}

// A sentinel that was ended alone is another's matter: a signal that comes later is the command's, and one that the group gets then is not
// handed on.
func TestSentinelEndedAlone(t *testing.T) {
	for what, group := range map[string]bool{"a signal to run": false, "a signal to the group": true} {
		process, err := os.StartProcess("/bin/sleep", []string{"sleep", "60"}, &os.ProcAttr{})
		if err != nil {
			t.Fatal(err)
		}
		r := newRelay(nil)
		if r.sentinel == nil {
			t.Fatal("no sentinel")
		}
		end := func() {
			if err := r.sentinel.process.Process.Signal(unix.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
		end()
		r.note(<-r.died())
		time.Sleep(window + 10*time.Millisecond)
		if group {
			end()
		}
		r.handOn(unix.SIGTERM, process)
		handed := make(chan struct{})
		go func() {
			_, _ = process.Wait()
			close(handed)
		}()
		select {
		case <-handed:
			if group {
				t.Errorf("%s: the command got it a second time", what)
			}
		case <-time.After(500 * time.Millisecond):
			if !group {
				t.Errorf("%s: the command did not get it", what)
			}
		}
		_ = process.Kill()
		<-handed
		r.sentinel.relieve()
	}
}

// What ends every sentinel as it comes is not given one after the other for ever.
func TestSentinelsThatDoNotLast(t *testing.T) {
	r := newRelay(nil)
	for n := 0; r.sentinel != nil; n++ {
		if n > mostAlone {
			t.Fatalf("%d were posted", n)
		}
		_ = r.sentinel.process.Process.Kill()
		r.note(<-r.died())
	}
}
