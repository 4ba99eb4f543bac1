package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// standIn takes the place of dynamiccld-train: it says what reached it, and ends as a signal tells it to.
const standIn = `#!/bin/sh
echo "args: $*"
read -r line
echo "stdin: $line" >&2
trap 'echo "signal"; exit 130' TERM
kill -TERM $$
exit 1
`

// TestTrainBecomesTheTrainer runs the built program beside a trainer, and then without one.
func TestTrainBecomesTheTrainer(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "dynamiccld")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as make has compiled all of it
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	run := func(path string, args ...string) (stdout, stderr string, code int) {
		t.Helper()
		cmd := exec.Command(program, args...)
		cmd.Stdin = strings.NewReader("from outside\n")
		cmd.Env = append(slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "PATH=") }), "PATH="+path)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		exit := new(exec.ExitError)
		if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return out.String(), errs.String(), cmd.ProcessState.ExitCode()
	}
	write := func(file string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(file, []byte(standIn), mode); err != nil {
			t.Fatal(err)
		}
	}
	_, stderr, code := run("", "train", "--updates", "5")
	if code != exitFailed || !strings.Contains(stderr, "dynamiccld-train, and it is neither in "+dir+" nor in PATH: `make` builds it") {
		t.Errorf("without a trainer: exit %d: %s", code, stderr)
	}
	inPath := t.TempDir()
	write(filepath.Join(inPath, trainer), 0o700)
	for _, where := range []string{"in PATH", "beside"} {
		for _, args := range [][]string{{"--updates", "5", "--resume"}, {"--help"}, {}} {
			stdout, stderr, code := run(inPath, append([]string{"train"}, args...)...)
			if want := strings.TrimSpace("args: "+strings.Join(args, " ")) + "\nsignal\n"; strings.ReplaceAll(stdout, "args: \n", "args:\n") != want || stderr != "stdin: from outside\n" || code != 130 {
				t.Errorf("%s, %q: exit %d: %q, %q", where, args, code, stdout, stderr)
			}
		}
		write(filepath.Join(dir, trainer), 0o700)
	}
	if stdout, _, _ := run(inPath, "help", "train"); !strings.HasPrefix(stdout, "args: --help\n") {
		t.Errorf("help train: %q", stdout)
	}
	if err := os.Chmod(filepath.Join(dir, trainer), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := run(inPath, "train"); code != exitFailed || !strings.Contains(stderr, "permission denied; build it again with `make`") {
		t.Errorf("a trainer that cannot be run: exit %d: %s", code, stderr)
	}
}

// A trainer that is no program is said to be one to build again.
func TestTrainerThatIsNoProgram(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if err := os.WriteFile(filepath.Join(dir, trainer), []byte("text"), 0o700); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	a := &app{stdout: &bytes.Buffer{}, stderr: &stderr}
	if code := a.main(context.Background(), []string{"train"}); code != exitFailed || !strings.Contains(stderr.String(), "exec format error; build it again with `make`") {
		t.Errorf("exit %d: %s", code, stderr.String())
	}
}
