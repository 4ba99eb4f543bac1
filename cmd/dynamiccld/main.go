package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// version is set by the linker (-X main.version=...); "": what the Go tool knows.
var version string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	// The first signal drains; a second one must not be swallowed.
	context.AfterFunc(ctx, stop)
	a := &app{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		getenv: os.Getenv, environ: os.Environ(), euid: os.Geteuid(),
		now: time.Now, open: openDaemon,
	}
	os.Exit(a.main(ctx, os.Args[1:]))
}
