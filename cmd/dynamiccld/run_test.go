package main

import (
	"os"
	"testing"

	"github.com/spf13/pflag"

	"dynamiccl/cmd/dynamiccld/internal/config"
)

// What `run` and `bench` are told of a daemon's settings the daemon that they start reads, those that are on or off among them.
func TestSettingsAreHandedOn(t *testing.T) {
	h := config.Host{Getenv: func(string) string { return "" }, EUID: 1000}
	settings := func(args ...string) (*pflag.FlagSet, config.Config) {
		t.Helper()
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		config.AddFlags(flags, h)
		if err := flags.Parse(args); err != nil {
			t.Fatal(err)
		}
		loaded, err := config.Load(config.Sources{Host: h, Flags: flags, File: os.DevNull})
		if err != nil || flags.NArg() != 0 {
			t.Fatalf("%q: %v, %q is left", args, err, flags.Args())
		}
		return flags, loaded.Config
	}
	flags, cfg := settings("--step-guard=false", "--learner", "ucb", "--trace", "/a file", "--seed=3")
	given, args := handedOn(flags, serveSettings, cfg)
	_, got := settings(args...)
	if len(given) != 3 || got.StepGuard || got.Learner != "ucb" || got.Trace != "/a file" || got.Seed != 1 {
		t.Errorf("%q came as %+v", args, got)
	}
}
