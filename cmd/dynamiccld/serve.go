package main

import (
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"dynamiccl/cmd/dynamiccld/internal/config"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/launch"
	"dynamiccl/cmd/dynamiccld/internal/service"
	"dynamiccl/models"
)

func (a *app) serveCommand() *cobra.Command {
	var file string
	var printConfig, untilUnused bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the daemon of one directory",
		Long: `Run the daemon: read what ranks measure, decide, publish plans. It stays in the
foreground; SIGTERM drains and ends it, SIGHUP reads the configuration again.

Settings come from defaults, the configuration file, the environment and flags, each
over the one before. The file is the one of --config or DYNAMICCL_CONFIG, else the
first that exists of $XDG_CONFIG_HOME/dynamiccl/config.yaml and
/etc/dynamiccl/config.yaml. It holds one "flag-name: value" a line.

On SIGHUP log-level, tick, sample-every, no-explore and explore-budget change at once;
for the others the log says that they need a restart.

--explore-budget bounds what trying other choices than NCCL's may lose: this share of the
time, 400 calls' worth of it at once in every bucket, and half of what was gained. 0%
tries nothing that is expected to lose.`,
		Example: `  dynamiccld serve
  dynamiccld serve --listen 9464 --learner ucb
  dynamiccld serve --config my.yaml --print-config`,
		Args: wantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			load := func() (config.Loaded, error) {
				return config.Load(config.Sources{Host: a.host(), Env: a.environ, Flags: cmd.Flags(), File: file})
			}
			loaded, err := load()
			if err != nil {
				return usageError(err)
			}
			if _, err := models.Open(loaded.Config.Policy); err != nil {
				return usageError(fmt.Errorf("%s: %w", loaded.Origin["policy"], err))
			}
			if printConfig {
				_, err := fmt.Fprint(a.stdout, loaded.YAML())
				return err
			}
			if loaded.Config.UntilUnused = untilUnused; untilUnused {
				launch.Settle()
			}
			return a.serve(cmd, loaded, load)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVar(&file, "config", "", "configuration file [DYNAMICCL_CONFIG]")
	config.AddFlags(cmd.Flags(), a.host())
	cmd.Flags().BoolVar(&untilUnused, "until-unused", false, "end once no 'dynamiccld run', nothing that one left behind, and no rank process needs it; how 'run' starts it")
	cmd.Flags().BoolVar(&printConfig, "print-config", false, "print the settings in force as a configuration file, with their origin, and stop")
	for name, values := range map[string][]string{
		"learner":    models.Names(),
		"log-level":  {"debug", "info", "warn", "error"},
		"log-format": {"text", "json"},
	} {
		complete(cmd, name, values)
	}
	return cmd
}

func (a *app) serve(cmd *cobra.Command, loaded config.Loaded, load func() (config.Loaded, error)) error {
	stderr := a.stderr
	if loaded.Config.UntilUnused {
		stderr = service.Bounded(stderr, service.LogBytes)
	}
	lossy := service.NewLossy(stderr)
	defer lossy.Close()
	log, level := service.NewLog(lossy, loaded.Config.LogFormat, loaded.Config.LogLevel)
	for _, w := range loaded.Warnings {
		log.Warn(w)
	}
	// The default action of SIGHUP would end the daemon, so it is taken before anything is opened.
	hangUp := make(chan os.Signal, 1)
	signal.Notify(hangUp, syscall.SIGHUP)
	defer signal.Stop(hangUp)
	// Go ends a process that writes to a standard error nobody reads any more: a pager that was left, a journal that was restarted.
	signal.Ignore(syscall.SIGPIPE)
	return service.Run(cmd.Context(), service.Options{
		Loaded: loaded, Reload: load, HangUp: hangUp, Open: a.open, Version: build().Version,
		Log: log, Level: level, Now: a.now,
		Handler: func(b control.Backend, readOnly func(*http.ServeMux)) http.Handler {
			return webHandler(b, log, readOnly)
		},
	})
}
