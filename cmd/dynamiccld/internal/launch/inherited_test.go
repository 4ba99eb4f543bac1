package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A daemon that `run` starts lives on with other runs: whoever waits for the end of a lock or a pipe that the command was given does not
// wait for the daemon. The command gets it all the same.
func TestDaemonInheritsNoLocks(t *testing.T) {
	dir := t.TempDir()
	lock, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	given, err := unix.FcntlInt(lock.Fd(), unix.F_DUPFD, 77) // as a shell gives it: not closed on exec
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(given)
	said := filepath.Join(dir, "said")
	daemon := filepath.Join(dir, "daemon")
	script := fmt.Sprintf("#!/bin/sh\n[ -e /proc/$$/fd/%d ] && echo inherited >%s || echo alone >%[2]s\n", given, said)
	if err := os.WriteFile(daemon, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	hears := func(of, want string) {
		t.Helper()
		if text, err := os.ReadFile(said); err != nil || strings.TrimSpace(string(text)) != want {
			t.Errorf("%s: %q, %v; want %q", of, text, err, want)
		}
	}
	if _, err := Need(t.Context(), Host{Dir: filepath.Join(dir, "run"), Executable: daemon}); err == nil {
		t.Fatal("a script that ends is a daemon")
	}
	hears("daemon", "alone")
	if end := (Command{Args: []string{daemon}, Streams: [3]*os.File{os.Stdin, os.Stdout, os.Stderr}}).Run(nil); end.Code != 0 {
		t.Fatalf("%+v", end)
	}
	hears("command", "inherited")
}
