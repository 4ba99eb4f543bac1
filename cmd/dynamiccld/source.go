package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"dynamiccl/cmd/dynamiccld/internal/config"
	"dynamiccl/cmd/dynamiccld/internal/control"
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
	cmd.Flags().StringVar(&s.comm, "comm", "", "only this communicator (hexadecimal, from 'dynamiccld status')")
	cmd.MarkFlagsMutuallyExclusive("comm", "store")
}

func complete(cmd *cobra.Command, flag string, values []string) {
	// An error here is a flag that does not exist: our own mistake.
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
}

// buckets gives all buckets of the source and its name.
func (a *app) buckets(ctx context.Context, s source) (all []control.Bucket, from string, err error) {
	if s.store != "" {
		all, bad, err := storefile.Read(s.store, a.now())
		for _, text := range bad {
			fmt.Fprintf(a.stderr, "dynamiccld: %s\n", text)
		}
		return all, "store " + s.store, err
	}
	client, cfg, err := a.client(s.dir)
	if err != nil {
		return nil, "", err
	}
	all, err = client.Buckets(ctx)
	if err != nil {
		return nil, "", orStore(err, cfg.Store)
	}
	if s.comm != "" {
		all, err = onlyComm(all, s.comm, func() string { return a.elsewhere(ctx, s) })
	}
	return all, "daemon of " + cfg.Dir, err
}

// elsewhere says that another host's daemon knows of the source's communicator, or of one; "": it does not, or nobody can say.
func (a *app) elsewhere(ctx context.Context, s source) string {
	id, _ := control.ParseCommID(s.comm) // who asks has read it before
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
		if c.Follows && (s.comm == "" || c.ID == id) {
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
	comm := ""
	if s.comm != "" {
		if comm, err = control.ParseCommID(s.comm); err != nil {
			return nil, usageError(err)
		}
	}
	return slices.DeleteFunc(all, func(r control.Replay) bool { return r.Bucket != want || comm != "" && r.Comm != comm }), nil
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

func onlyComm(all []control.Bucket, text string, elsewhere func() string) ([]control.Bucket, error) {
	id, err := control.ParseCommID(text)
	if err != nil {
		return nil, usageError(err)
	}
	var own []control.Bucket
	for _, b := range all {
		if b.Comm == id {
			own = append(own, b)
		}
	}
	if len(own) == 0 {
		return nil, &exitError{exitUnknown, fmt.Errorf("nothing is known of communicator %s; `dynamiccld status` lists those that live%s", id, elsewhere())}
	}
	return own, nil
}
