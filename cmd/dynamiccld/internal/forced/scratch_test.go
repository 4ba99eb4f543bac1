package forced

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"dynamiccl/nccltuner"
)

// What programs that were killed left goes, logs included; what is of a living one, or of nobody known, stays.
func TestStaleFoldersAreRemoved(t *testing.T) {
	parent := t.TempDir()
	died := exec.Command("true")
	if err := died.Run(); err != nil {
		t.Fatal(err)
	}
	make := func(name string) string {
		folder := filepath.Join(parent, name)
		if err := os.MkdirAll(filepath.Join(folder, "logs"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "logs", "rank0.log"), []byte("said\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return folder
	}
	dead := fmt.Sprint(ScratchPrefix, died.Process.Pid, "-")
	zombie, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = zombie.Wait() }() // not before
	for deadline := time.Now().Add(5 * time.Second); !nccltuner.Ended(zombie.Pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not end")
		}
	}
	stale := []string{make(dead + "1"), make(fmt.Sprint(ScratchPrefix, zombie.Pid, "-1"))}
	kept := []string{make(fmt.Sprint(ScratchPrefix, os.Getpid(), "-1")), make(ScratchPrefix + "mine"), make(ScratchPrefix + "-1-2"), make("other-1-1"),
		make(dead + "container")}
	held, err := lock(kept[4]) // by a process that has this number where it runs
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(held)
	if err := os.Symlink(kept[3], filepath.Join(parent, dead+"link")); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 { // who could delete it
		kept = append(kept, make(dead+"another-user"))
		if err := os.Chown(kept[5], 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	own, err := Folder(parent, ScratchPrefix)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock(own); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("its own folder is not locked: %v", err)
	}
	for _, folder := range stale {
		if _, err := os.Stat(folder); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", folder, err)
		}
	}
	for _, folder := range kept {
		if _, err := os.Stat(filepath.Join(folder, "logs", "rank0.log")); err != nil {
			t.Error(err)
		}
	}
}
