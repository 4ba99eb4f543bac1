package service

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/config"
	"dynamiccl/cmd/dynamiccld/internal/control"
)

// Daemon is the loop that reads samples and publishes plans.
type Daemon interface {
	control.Backend
	// Run works until ctx ends, then drains and returns nil. It is called once.
	Run(ctx context.Context) error
	// Reload takes over the settings that may change live; the others are as they were. Called while Run runs.
	Reload(cfg config.Config)
	// Close gives back lock and files. It is called once, after Run or instead of it.
	Close() error
}

// Open makes, checks and locks the directory (nccltuner.OpenDir) and opens the store. It starts nothing.
type Open func(cfg config.Config, version string, log *slog.Logger) (Daemon, error)

// Options are what Run needs from its surroundings.
type Options struct {
	Loaded  config.Loaded
	Reload  func() (config.Loaded, error) // reads file and environment again
	HangUp  <-chan os.Signal              // SIGHUP
	Open    Open
	Version string
	Log     *slog.Logger
	Level   *slog.LevelVar // of Log
	Now     func() time.Time
	// Handler makes what --listen serves from the daemon; readOnly are the JSON views.
	Handler func(b control.Backend, readOnly func(*http.ServeMux)) http.Handler
}

// Run serves until ctx ends. Trouble with control socket or metrics after the start is logged and harms no tuning.
func Run(ctx context.Context, o Options) (err error) {
	cfg := o.Loaded.Config
	if err := control.CheckDir(cfg.Dir); err != nil {
		return err
	}
	d, err := o.Open(cfg, o.Version, o.Log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()

	// The daemon's lock is held from here on, so that nobody else can be opening the socket now.
	socket, err := control.Listen(cfg.Dir)
	if err != nil {
		return err
	}
	web, err := listen(cfg.Listen)
	if err != nil && cfg.UntilUnused { // its settings may be the machine's, and another user's daemon have the port
		o.Log.Error("there are no metrics; tuning goes on", "err", err)
	} else if err != nil {
		return errors.Join(err, socket.Close())
	}

	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	server := control.NewServer(d, o.Log, o.Now)
	wg.Go(func() {
		if err := server.Serve(ctx, socket); err != nil {
			o.Log.Error("control socket is gone, commands cannot reach this daemon; tuning goes on", "err", err)
		}
	})
	if web != nil {
		o.Log.Info("serving metrics", "address", web.Addr().String())
		wg.Go(func() { serveWeb(ctx, web, o.Handler(d, server.AddReadOnly), o.Log) })
	}
	wg.Go(func() { reloads(ctx, o, d, cfg) })
	if cfg.UntilUnused {
		// Kept until the process ends, so that a `run` that comes meanwhile waits and then starts a daemon of its own.
		wg.Go(func() { untilUnused(ctx, stop, cfg.Dir, d, o.Log) })
	}

	o.Log.Info("daemon started", "dir", cfg.Dir, "store", cfg.Store, "learner", cfg.Learner, "version", o.Version)
	err = d.Run(ctx)
	stop()
	wg.Wait()
	o.Log.Info("daemon stopped")
	return err
}

// reloads takes over what may change live, and says what may not. A configuration that does not load changes nothing.
func reloads(ctx context.Context, o Options, d Daemon, cfg config.Config) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.HangUp:
		}
		next, err := o.Reload()
		if err != nil {
			o.Log.Error("configuration not reloaded, the old one stays in force", "err", err)
			continue
		}
		merged, live, restart := config.Reload(cfg, next.Config)
		for _, c := range restart {
			o.Log.Warn("setting needs a restart", "setting", c.Key, "in_force", c.Old, "wanted", c.New)
		}
		if len(live) > 0 {
			SetLevel(o.Level, merged.LogLevel)
			d.Reload(merged)
		}
		for _, c := range live {
			o.Log.Info("setting changed", "setting", c.Key, "old", c.Old, "new", c.New)
		}
		cfg = merged
		o.Log.Info("configuration reloaded", "file", next.File, "changed", len(live), "need_restart", len(restart))
	}
}
