package testproc

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// failing is a test that is told of a failure and goes on.
type failing struct {
	testing.TB
	said bool
}

func (f *failing) Fatalf(string, ...any) {
	f.said = true
	panic(f) // as Fatalf, it does not return
}

func TestNoneLeft(t *testing.T) {
	variable := "TMPDIR=" + t.TempDir()
	NoneLeft(t, variable, 0)
	child := exec.Command("sleep", "60")
	child.Env = append(os.Environ(), variable)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	f := &failing{TB: t}
	func() {
		defer func() { _ = recover() }()
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); { // until it runs its program
			NoneLeft(f, variable, 0)
		}
	}()
	if left := With(t, variable); !f.said || len(left) != 1 || !strings.HasSuffix(left[0], " sleep") {
		t.Errorf("%v are left, and it fails: %t", left, f.said)
	}
	_ = child.Process.Kill()
	_ = child.Wait() // of a kill
	NoneLeft(t, variable, time.Second)
}
