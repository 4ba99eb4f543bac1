package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"dynamiccl/cmd/dynamiccld/internal/config"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/render"
	"dynamiccl/cmd/dynamiccld/internal/storefile"
	"dynamiccl/cmd/dynamiccld/internal/units"
	"dynamiccl/state"
)

// source is where a command takes its buckets from: a live daemon, or a store file.
type source struct {
	store string
	comm  string
	dir   *pflag.FlagSet
}

// flag is what names a store file to another command, to be copied.
func (s source) flag() string {
	if s.store == "" {
		return ""
	}
	return " --store " + units.Word(s.store)
}

func jsonFlag(cmd *cobra.Command, v *bool) {
	cmd.Flags().BoolVar(v, "json", false, "write JSON with stable keys")
}

// dirFlag adds --dir alone of serve's settings.
func (a *app) dirFlag(cmd *cobra.Command) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.AddFlags(all, a.host())
	cmd.Flags().AddFlag(all.Lookup("dir"))
}

func (a *app) sourceFlags(cmd *cobra.Command, s *source) {
	a.dirFlag(cmd)
	s.dir = cmd.Flags()
	cmd.Flags().StringVar(&s.store, "store", "", "read this store file and not a live daemon")
	cmd.MarkFlagsMutuallyExclusive("dir", "store")
}

func (a *app) commFlag(cmd *cobra.Command, s *source) {
	commFlag(cmd, &s.comm)
	cmd.MarkFlagsMutuallyExclusive("comm", "store")
}

func commFlag(cmd *cobra.Command, id *string) {
	cmd.Flags().Func("comm", "only this communicator (hexadecimal `id`, from 'dynamiccld status')", func(text string) (err error) {
		*id, err = control.ParseCommID(text)
		return err
	})
}

func complete(cmd *cobra.Command, flag string, values []string) {
	// An error here is a flag that does not exist: our own mistake.
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
}

// buckets gives all buckets of the source and its name. That it has none ends a command with exitUnknown.
func (a *app) buckets(ctx context.Context, s source) (all []control.Bucket, from string, err error) {
	if s.store != "" {
		all, bad, err := storefile.Read(s.store, a.now())
		for _, text := range bad {
			fmt.Fprintf(a.stderr, "dynamiccld: %s\n", text)
		}
		from = "store " + s.store
		if err == nil && len(all) == 0 {
			err = unknown("%s holds no choices; is it the file that serve --store names?", from)
		}
		return all, from, err
	}
	client, cfg, err := a.client(s.dir)
	if err != nil {
		return nil, "", err
	}
	all, err = client.Buckets(ctx)
	if err != nil {
		return nil, "", orStore(err, cfg.Store)
	}
	from = "daemon of " + cfg.Dir
	if s.comm != "" {
		all = slices.DeleteFunc(all, func(b control.Bucket) bool { return b.Comm != s.comm })
	}
	switch {
	case len(all) > 0:
	case s.comm != "":
		err = unknown("nothing is known of communicator %s; `dynamiccld status` lists those that live%s", s.comm, a.elsewhere(ctx, s))
	default:
		err = unknown("%s has seen no collective yet; `dynamiccld status` shows communicators, `dynamiccld doctor` what is missing%s", from, a.elsewhere(ctx, s))
	}
	return all, from, err
}

// elsewhere says that another host's daemon knows of the source's communicator, or of one; "": it does not, or nobody can say.
func (a *app) elsewhere(ctx context.Context, s source) string {
	if s.store != "" {
		return ""
	}
	client, _, err := a.client(s.dir)
	if err != nil {
		return ""
	}
	st, err := client.Status(ctx)
	if err != nil {
		return ""
	}
	for _, c := range st.Comms {
		if c.Follows && (s.comm == "" || c.ID == s.comm) {
			return fmt.Sprintf("; ask on the host of rank 0 of communicator %s, whose daemon tunes it", c.ID)
		}
	}
	return ""
}

// replays gives what CUDA graphs of a live daemon's communicators hold of a bucket.
func (a *app) replays(ctx context.Context, s source, want state.Bucket) ([]control.Replay, error) {
	if s.store != "" {
		return nil, nil
	}
	client, _, err := a.client(s.dir)
	if err != nil {
		return nil, err
	}
	all, err := client.Replays(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(r control.Replay) bool { return r.Bucket != want || s.comm != "" && r.Comm != s.comm }), nil
}

// client asks the daemon of --dir; without the flag it follows the same settings as serve.
func (a *app) client(flags *pflag.FlagSet) (*control.Client, config.Config, error) {
	loaded, err := config.Load(config.Sources{Host: a.host(), Env: a.environ, Flags: flags})
	if err != nil {
		return nil, config.Config{}, usageError(err)
	}
	return a.asking(loaded.Config.Dir), loaded.Config, nil
}

// asking is the client of a person, who is told what takes long.
func (a *app) asking(dir string) *control.Client {
	c := control.NewClient(dir)
	c.Waiting(func(text string) { fmt.Fprintf(a.stderr, "dynamiccld: %s\n", text) })
	return c
}

// orStore adds to an error of a missing daemon what can be read without one.
func orStore(err error, path string) error {
	if _, statErr := os.Stat(path); errors.Is(err, control.ErrNoDaemon) && statErr == nil {
		return fmt.Errorf("%w; what was learned before can be read with --store %s", err, units.Word(path))
	}
	return err
}

// unknown is what ends a reading command that has nothing to show.
func unknown(format string, args ...any) error {
	return &exitError{exitUnknown, fmt.Errorf(format, args...)}
}

func isUnknown(err error) bool {
	exit := new(exitError)
	return errors.As(err, &exit) && exit.code == exitUnknown
}

// nothing ends a command with err; where that is exitUnknown, --json has its empty answer all the same.
func (a *app) nothing(err error, asJSON bool, empty any) error {
	if asJSON && isUnknown(err) {
		return cmp.Or(render.JSON(a.stdout, empty), err)
	}
	return err
}
