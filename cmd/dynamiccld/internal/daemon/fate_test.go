package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"dynamiccl/nccltuner"
)

// process finds a child again as ranks register themselves.
func process(t *testing.T, pid int) nccltuner.Process {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	start, err := strconv.ParseUint(fields[22-3], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return nccltuner.Process{PID: uint32(pid), StartTime: start}
}

// The first rank that stands still is named with what became of it, others like it are counted, and those that have left are none.
func TestTroubleOfRanks(t *testing.T) {
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	p := process(t, child.Process.Pid)
	c := &comm{}
	view := func(left ...bool) {
		c.view.Ranks = nil
		for i, l := range left {
			c.view.Ranks = append(c.view.Ranks, nccltuner.RankView{Process: p, Rank: i + 3, Left: l})
		}
	}
	says := func(want string) {
		t.Helper()
		if got := c.trouble(fates{}); got != want {
			t.Errorf("says %q, want %q", got, want)
		}
	}
	view(false, false)
	says("")
	if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(child.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatal(status, err)
	}
	stopped := fmt.Sprintf("rank 3, process %d, is stopped, and the others wait for it: let it go on with `kill -CONT %[1]d`", p.PID)
	view(false)
	says(stopped)
	view(false, false, true, false)
	says(stopped + "; likewise 2 more")
	view(true, true)
	says("")
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // reports the signal
	view(true, false)
	says("") // nobody waits
	view(false, false)
	says("")
	c.view.Ranks = append(c.view.Ranks[1:], nccltuner.RankView{Process: process(t, os.Getpid()), Rank: 0})
	says(fmt.Sprintf("rank 4, process %d, has died, and the others wait for it until the program ends", p.PID))
}
