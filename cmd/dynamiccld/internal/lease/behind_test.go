package lease

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// Behind finds what lives and has both variables, word for word, and nothing else.
func TestBehind(t *testing.T) {
	const dir = "/nowhere/of/this/test"
	for _, tc := range []struct {
		name    string
		environ []string
		run     string
		found   bool
	}{
		{"of a run", []string{"DYNAMICCL_DIR=" + dir, "A=1", "DYNAMICCL_RUN=12"}, "12", true},
		{"of any run", []string{"DYNAMICCL_RUN=12", "DYNAMICCL_DIR=" + dir}, "", true},
		{"of another run", []string{"DYNAMICCL_RUN=123", "DYNAMICCL_DIR=" + dir}, "12", false},
		{"of no run", []string{"DYNAMICCL_DIR=" + dir}, "", false},
		{"another directory", []string{"DYNAMICCL_RUN=12", "DYNAMICCL_DIR=" + dir + "2"}, "12", false},
		{"other variables", []string{"MY_DYNAMICCL_RUN=12", "DYNAMICCL_DIR=" + dir}, "12", false},
	} {
		p := exec.Command("sleep", "60")
		p.Env = tc.environ
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		got := Behind(dir, tc.run)
		if found := len(got) == 1 && int(got[0].PID) == p.Process.Pid; found != tc.found || !found && len(got) > 0 {
			t.Errorf("%s: %v", tc.name, got)
		}
		if err := p.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(5 * time.Second); tc.found && len(Behind(dir, tc.run)) > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: found after its end, whose number is kept", tc.name)
			}
		}
		_ = p.Wait() // killed
	}
	t.Setenv(RunVariable, "12")
	if got := Behind(dir, "12"); len(got) != 0 {
		t.Errorf("process %d itself: %v", os.Getpid(), got)
	}
}

// What becomes one program after the other is found at any time.
func TestBehindWhileItExecs(t *testing.T) {
	const dir = "/nowhere/of/this/test/either"
	script := filepath.Join(t.TempDir(), "again")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n[ $1 = 0 ] && exec sleep 60\nexec $0 $(($1 - 1))\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	p := exec.Command(script, "400")
	p.Env = []string{"DYNAMICCL_RUN=12", "DYNAMICCL_DIR=" + dir, "PATH=" + os.Getenv("PATH")}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = p.Wait() // killed
	}()
	for looks := 0; ; looks++ {
		if got := Behind(dir, "12"); len(got) != 1 {
			t.Fatalf("look %d: %v", looks, got)
		}
		if name, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.Process.Pid), "comm")); err != nil || string(name) == "sleep\n" {
			t.Logf("%d looks", looks)
			return
		}
	}
}
