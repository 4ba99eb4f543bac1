package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"dynamiccl/cmd/dynamiccld/internal/config"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/service"
)

// Exit codes. Scripts rely on them: add, never renumber.
const (
	exitOK       = 0
	exitFailed   = 1 // also: doctor found something that fails
	exitUsage    = 2 // wrong command, flag, argument or setting
	exitNoDaemon = 3
	exitUnknown  = 4 // table, why, links, export: nothing is known of what was asked for
)

// app is the process that the commands run in.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	environ        []string
	euid           int
	now            func() time.Time
	open           service.Open
	sysroot        string         // doctor's prefix of /etc, /proc and /lib; "" but in tests
	help           checked        // standard output for what cobra writes
	died           syscall.Signal // that ended the command of `run`, to be raised at the very end; 0: none
}

// exitError ends the command with a code. An empty message prints nothing more.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func usageError(err error) error { return &exitError{exitUsage, err} }

// errShown says that the command itself has written what is wrong.
var errShown = errors.New("shown")

func (a *app) host() config.Host { return config.Host{Getenv: a.getenv, EUID: a.euid} }

// main runs one command and gives the exit code.
func (a *app) main(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	err := cmp.Or(root.ExecuteContext(ctx), a.help.err)
	if err == nil {
		return exitOK
	}
	if strings.HasPrefix(err.Error(), "unknown command") { // cobra gives it no type
		err = usageError(withHelp(err))
	}
	if group, is := strings.CutPrefix(err.Error(), "if any flags in the group ["); is { // likewise
		names, _, _ := strings.Cut(group, "]")
		err = usageError(errors.New("give one of --" + strings.ReplaceAll(names, " ", " and --") + ", not both"))
	}
	if !errors.Is(err, errShown) {
		fmt.Fprintf(a.stderr, "dynamiccld: %v\n", err)
	}
	exit, silent := new(exitError), new(control.SilentError)
	switch {
	case errors.As(err, &exit):
		return exit.code
	case errors.Is(err, control.ErrNoDaemon), errors.As(err, &silent): // to a script both are that none answers
		return exitNoDaemon
	}
	return exitFailed
}

// checked keeps the first error of writing help, of which cobra says nothing.
type checked struct {
	w   io.Writer
	err error
}

func (c *checked) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	if c.err == nil && err != nil {
		c.err = fmt.Errorf("writing help: %w", err)
	}
	return n, err
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "dynamiccld",
		Short: "Makes an unmodified NCCL program's communication faster and says why it chose what it chose",
		Long: `dynamiccld chooses algorithm, protocol and channels of NCCL's collectives from what
it measures, the same on every rank, and keeps a choice only while it is measured
better than NCCL's own.

Run a program with it:

  dynamiccld run -- torchrun train.py

or keep a daemon and start programs as before:

  dynamiccld serve &
  eval "$(dynamiccld env)"
  torchrun train.py

and ask:

  dynamiccld doctor              is everything set up?
  dynamiccld status              who takes part?
  dynamiccld table               what is chosen?
  dynamiccld why AllReduce 64K   and why?

Exit codes: 0 done; 1 failed, or doctor found a failure; 2 wrong command, flag or
setting; 3 no daemon answers; 4 table, why, links or export know nothing of what was
asked for, and --json has an empty answer. run's are its program's, and train has more.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       build().Version, // --version; the command says more
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	a.help = checked{w: a.stdout}
	root.SetIn(a.stdin)
	root.SetOut(&a.help)
	root.SetErr(a.stderr)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return emptyLists(cmd.Flags()) }
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		bad := new(pflag.InvalidValueError)
		if errors.As(err, &bad) && bad.GetValue() == "" && isList(bad.GetFlag()) {
			return emptyList(bad.GetFlag())
		}
		number := new(strconv.NumError)
		if errors.As(err, &number) { // Go's words for Go's functions
			want := "a number in range"
			switch {
			case number.Func == "ParseBool":
				want = "true or false"
			case errors.Is(err, strconv.ErrSyntax):
				want = "a number"
			}
			err = fmt.Errorf("--%s: %q is not %s", bad.GetFlag().Name, number.Num, want)
		}
		if why := errors.Unwrap(bad); why != nil && strings.HasPrefix(why.Error(), "time: ") { // likewise
			err = fmt.Errorf("--%s: %q is not a duration; write a number with a unit, like 10ms", bad.GetFlag().Name, bad.GetValue())
		}
		return usageError(fmt.Errorf("%w; see `%s --help`", err, cmd.CommandPath()))
	})
	root.AddCommand(a.runCommand(), a.envCommand(), a.serveCommand(), a.statusCommand(), a.tableCommand(), a.whyCommand(), a.linksCommand(),
		a.exportCommand(), a.importCommand(), a.doctorCommand(), a.versionCommand(), a.demoCommand(), a.evalCommand(), a.agentCommand(), a.trainCommand(),
		a.sweepCommand(), a.sweepLoadCommand(), a.calibrateCommand(), a.benchCommand())
	refuseUnknown(root)
	return root
}

// refuseUnknown has cobra's own commands end with exitUsage where it prints help and calls that done: a script that writes completions
// into a file would have help there.
func refuseUnknown(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Args = func(_ *cobra.Command, args []string) error {
				_, _, err := root.Find(args)
				return err
			}
		case "completion":
			cmd.RunE = func(*cobra.Command, []string) error {
				return usageError(fmt.Errorf("completion wants the name of a shell: bash, zsh, fish or powershell; see `%s --help`", cmd.CommandPath()))
			}
		}
	}
}

// emptyLists refuses lists that were given and have nothing in them, as a script's --sizes=$SIZES has: whether nothing or
// everything is meant nobody knows.
func emptyLists(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		if list, ok := f.Value.(pflag.SliceValue); ok && len(list.GetSlice()) == 0 && err == nil {
			err = emptyList(f)
		}
	})
	return err
}

func emptyList(f *pflag.Flag) error {
	return usageError(fmt.Errorf("--%s is an empty list; name at least one, or leave the flag out for its default", f.Name))
}

func isList(f *pflag.Flag) bool {
	_, ok := f.Value.(pflag.SliceValue)
	return ok
}

// withHelp brings cobra's word on an unknown command, and what it takes to be meant, into one line that says where all are.
func withHelp(err error) error {
	said, near, _ := strings.Cut(err.Error(), "\n\nDid you mean this?\n")
	if names := strings.Fields(near); len(names) > 0 {
		said += "; did you mean " + strings.Join(names, " or ") + "?"
	}
	return fmt.Errorf("%s (`dynamiccld --help` lists all)", said)
}

// wantArgs is cobra.ExactArgs with an error that names what is missing.
func wantArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		want := strings.Join(names, " ")
		if want == "" {
			want = "no arguments"
		}
		return usageError(fmt.Errorf("%s wants %s and got %d; see `%s --help`", cmd.Name(), want, len(args), cmd.CommandPath()))
	}
}
