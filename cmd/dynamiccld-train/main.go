// Command dynamiccld-train trains the policy. It is a program of its own, which `dynamiccld train` starts, because
// gorgonia brings a dependency that panics in its init where it does not know the version of Go: that may end a training,
// never a daemon.
package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"dynamiccl/cmd/internal/ending"
)

// version is set by the linker (-X main.version=...); "": what the Go tool knows.
var version string

func main() {
	signals := []os.Signal{syscall.SIGTERM, syscall.SIGINT}
	if !signal.Ignored(syscall.SIGHUP) { // under nohup it stays ignored
		signals = append(signals, syscall.SIGHUP)
	}
	// Who read what is said may be gone with the connection; that must not end training, least of all before all is kept.
	signal.Ignore(syscall.SIGPIPE)
	ctx := ending.Context(signals...) // the first signal ends training in order; a second one must end it at once
	p := &program{stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv, now: time.Now, commit: commit(), start: newTrainer}
	os.Exit(p.main(ctx, os.Args[1:]))
}
