package main

import (
	"log/slog"

	"dynamiccl/cmd/dynamiccld/internal/config"
	"dynamiccl/cmd/dynamiccld/internal/daemon"
	"dynamiccl/cmd/dynamiccld/internal/service"
)

// openDaemon is where the daemon's loop is plugged in.
func openDaemon(cfg config.Config, version string, log *slog.Logger) (service.Daemon, error) {
	d, err := daemon.Open(cfg, version, log)
	if err != nil {
		return nil, err // a nil *daemon.Daemon in the interface would not be nil
	}
	return d, nil
}
