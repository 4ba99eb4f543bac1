package launch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/lease"
	"dynamiccl/cmd/dynamiccld/internal/units"
	"dynamiccl/nccltuner"
)

func (d *Daemon) start(ctx context.Context) error {
	h := d.host
	// A pipe of that name must not hold the command up until somebody reads it.
	const flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC | os.O_APPEND | unix.O_NOFOLLOW | unix.O_NONBLOCK
	log, err := os.OpenFile(filepath.Join(h.Dir, nccltuner.DaemonLogName), flags, 0o600)
	if err != nil {
		return fmt.Errorf("making the daemon's log: %w", lease.NotOpened(err))
	}
	defer log.Close()
	cmd := exec.Command(h.Executable, append([]string{"serve", "--until-unused", "--dir", h.Dir}, h.Args...)...)
	cmd.Env, cmd.Dir = environOf(h.Environ), "/"
	cmd.Stdout, cmd.Stderr = log, log
	// A session of its own: it outlives Ctrl-C and the terminal, for other runs may have joined.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	release := withhold()
	if h.Shared {
		err = apart(cmd.Start)
	} else {
		err = cmd.Start()
	}
	release()
	if err != nil {
		return fmt.Errorf("starting the daemon: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its log has the reason; waiting keeps no zombie
		close(ended)
	}()
	for {
		if d.Status, err = d.client.Status(ctx); err == nil {
			d.Started = d.Status.PID == cmd.Process.Pid
			return nil
		}
		select {
		case <-ended:
			if d.Status, err = d.client.Status(ctx); err == nil {
				return nil // it found that another daemon serves the directory
			}
			return fmt.Errorf("the daemon did not start: %s", whyNot(log.Name()))
		case <-ctx.Done(): // it may have much to read, and there is nothing that the command needs it for
			d.Started, d.Status = true, control.Status{PID: cmd.Process.Pid, UntilUnused: true}
			return fmt.Errorf("the daemon that was started takes more than %v: %w; see %s", startWithin, ctx.Err(), log.Name())
		case <-time.After(askEvery):
		}
	}
}

// environOf is the environment of a daemon that environ's program needs. Within a run it is not what the outer one left behind; and what
// the program asks for is its ranks' to say, and is not what the daemon does with others'.
func environOf(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return name == RunVariable || name == exploreVariable || name == numericsVariable
	})
}

// logPrefix begins what a command says in the end of itself.
const logPrefix = "dynamiccld: "

// lastLine of a daemon's log.
func lastLine(path string) (string, error) {
	text, err := os.ReadFile(path)
	line := strings.TrimSpace(string(text))
	return line[strings.LastIndexByte(line, '\n')+1:], err
}

// whyNot says why a daemon did not start, by its log.
func whyNot(path string) string {
	line, err := lastLine(path)
	if err != nil {
		return err.Error()
	}
	if words := strings.TrimPrefix(line, logPrefix); words != "" {
		return words
	}
	return path + " does not say why, as on a full disk (`df " + units.Word(filepath.Dir(path)) + "`); `dynamiccld serve` says it here"
}
