package launch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What is there and cannot be run is not said to be missing, nor does a shell take a program's bytes for commands.
func TestCommandThatCannotStart(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "marker")
	for name, tc := range map[string]struct {
		text string
		code int
		says string
	}{
		"interpreter":   {"#!/no/such/python\nprint()\n", CodeNotFound, "the interpreter that its first line names, or its loader, is not there"},
		"line of DOS":   {"#!/bin/sh\r\ntrue\r\n", CodeNotFound, "the interpreter that its first line names"},
		"architecture":  {"\x7fELF\x02\x01\x01\x00;\ntouch " + marker + "\n", CodeNotExecutable, "no program of this machine"},
		"no first line": {"exit 9\n", 9, ""},
		"NUL later":     {"exit 8\n\x00", 8, ""},
		"empty":         {"", 0, ""},
	} {
		path := filepath.Join(t.TempDir(), "program")
		if err := os.WriteFile(path, []byte(tc.text), 0o700); err != nil {
			t.Fatal(err)
		}
		end := Command{Args: []string{path}, Environ: os.Environ()}.Run(nil)
		if end.Code != tc.code || (end.Err != nil) != (tc.says != "") || end.Err != nil && !strings.Contains(end.Err.Error(), tc.says) {
			t.Errorf("%s: %+v, want %d and %q", name, end, tc.code, tc.says)
		}
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("a shell ran what is a program's")
	}
}

// Without PATH, as behind env -i, a command is found where execvp(3) finds it.
func TestCommandWithoutPath(t *testing.T) {
	t.Setenv("PATH", "") // restored at the end
	for _, set := range []bool{true, false} {
		if !set {
			os.Unsetenv("PATH")
		}
		for name, code := range map[string]int{"true": 0, "no-such-command": CodeNotFound, "bin/true": CodeNotFound} {
			if set {
				code = CodeNotFound
			}
			if end := (Command{Args: []string{name}}).Run(nil); end.Code != code {
				t.Errorf("%s, PATH is set: %v: %+v, want %d", name, set, end, code)
			}
		}
	}
}

// What the kernel has no room for is not said to be no program.
func TestCommandForWhichThereIsNoRoom(t *testing.T) {
	end := Command{Args: []string{"/bin/true", strings.Repeat("x", 1<<20)}, Environ: os.Environ()}.Run(nil) // MAX_ARG_STRLEN is 128 KiB
	if end.Code != CodeNotExecutable || end.Err == nil || !strings.Contains(end.Err.Error(), "shorten them") {
		t.Errorf("long argument: %+v", end)
	}
	long, took := append(os.Environ(), "X="+strings.Repeat("x", 1<<20)), 0
	plain := Command{Args: []string{"/bin/sh", "-c", "exit ${#X}"}, Environ: long, Plain: []string{"X=seven77"}, TookPlain: func() { took++ }}
	if end := plain.Run(nil); end.Code != 7 || end.Err != nil || took != 1 {
		t.Errorf("variables of ours have no room: %+v, said %d times", end, took)
	}
	plain.Plain = long
	if end := plain.Run(nil); end.Code != CodeNotExecutable || end.Err == nil || took != 1 {
		t.Errorf("the user's have none either: %+v, said %d times", end, took)
	}
	for _, errno := range []error{unix.EMFILE, unix.EAGAIN} {
		if end := notStarted("x", errno); end.Code != CodeNotExecutable || !strings.Contains(end.Err.Error(), "raise the limit") {
			t.Errorf("%v: %+v", errno, end)
		}
	}
}
