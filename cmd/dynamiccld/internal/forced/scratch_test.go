package forced

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
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
	stale := make(fmt.Sprint(ScratchPrefix, died.Process.Pid, "-1"))
	kept := []string{make(fmt.Sprint(ScratchPrefix, os.Getpid(), "-1")), make(ScratchPrefix + "mine"), make(ScratchPrefix + "-1-2"), make("other-1-1")}
	RemoveStale(parent, ScratchPrefix)
	if _, err := os.Stat(stale); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", stale, err)
	}
	for _, folder := range kept {
		if _, err := os.Stat(filepath.Join(folder, "logs", "rank0.log")); err != nil {
			t.Error(err)
		}
	}
}
