package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/launch"
	"dynamiccl/cmd/internal/ending"
)

// version is set by the linker (-X main.version=...); "": what the Go tool knows.
var version string

func main() {
	// A signal that was ignored from the start stays ignored (nohup, a shell's &), for a command of `run` as well.
	ends := []os.Signal{syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGINT) {
		ends = append(ends, syscall.SIGINT)
	}
	ctx := ending.Context(ends...) // the first signal drains; a second one must not be swallowed
	a := &app{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		getenv: os.Getenv, environ: os.Environ(), euid: os.Geteuid(),
		now: time.Now, open: openDaemon,
	}
	code := a.main(ctx, os.Args[1:])
	if a.died != 0 {
		launch.Raise(a.died)
	}
	os.Exit(code)
}
