package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"syscall"
	"testing"
)

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// Help that cannot be written is a failure, as any other answer is, and said once.
func TestHelpThatCannotBeWritten(t *testing.T) {
	for _, line := range []string{"--help", "help", "help status", "status --help", "--version", "completion bash"} {
		for stdout, want := range map[io.Writer]int{full{}: exitFailed, io.Discard: exitOK} {
			var stderr bytes.Buffer
			a := &app{stdin: strings.NewReader(""), stdout: stdout, stderr: &stderr, getenv: func(string) string { return "" }}
			if code := a.main(context.Background(), split(line)); code != want || strings.Count(stderr.String(), "no space left on device") != want {
				t.Errorf("%q: exit code %d, want %d: %s", line, code, want, stderr.String())
			}
		}
	}
}
