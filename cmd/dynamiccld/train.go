package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// trainer is the program that `train` becomes. It is one of its own because gorgonia brings a dependency that panics in
// its init where it does not know the version of Go: a daemon must not be linked with that.
const trainer = "dynamiccld-train"

func (a *app) trainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "train [flags]",
		Short: "Train the policy on tables, synthetic fabrics and a daemon's experience",
		// All flags are the trainer's, --help too.
		DisableFlagParsing: true,
		RunE:               func(_ *cobra.Command, args []string) error { return a.becomeTrainer(args) },
	}
	cmd.SetHelpFunc(func(*cobra.Command, []string) { // `dynamiccld help train`
		if err := a.becomeTrainer([]string{"--help"}); err != nil {
			fmt.Fprintf(a.stderr, "dynamiccld: %v\n", err)
		}
	})
	return cmd
}

// becomeTrainer replaces this process, so that standard streams, signals and the exit code are the trainer's own. It
// returns only when that fails.
func (a *app) becomeTrainer(args []string) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program's folder: %w", err)
	}
	file, err := findTrainer(filepath.Dir(exe))
	if err != nil {
		return err
	}
	if err := unix.Exec(file, append([]string{file}, args...), a.environ); err != nil {
		return fmt.Errorf("starting %s: %w; build it again with `make`", file, err)
	}
	return nil
}

// findTrainer looks beside this program, then in PATH.
func findTrainer(dir string) (string, error) {
	beside := filepath.Join(dir, trainer)
	file, err := exec.LookPath(beside)
	if err == nil {
		return file, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w; build it again with `make`", err)
	}
	if file, err = exec.LookPath(trainer); err != nil {
		return "", fmt.Errorf("training is a program of its own, %s, and it is neither in %s nor in PATH: `make` builds it", trainer, dir)
	}
	return file, nil
}
