package testbuild

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// waitDelay is how long what is left of a command may still have its output open, which whoever reads it waits for.
var waitDelay = 20 * time.Second

// Command is exec.CommandContext for programs that have children: these end with it, too, when its time is over.
func Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error {
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
			return err
		}
		return os.ErrProcessDone
	}
	cmd.WaitDelay = waitDelay
	return cmd
}
