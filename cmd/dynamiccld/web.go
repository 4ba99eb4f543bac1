package main

import (
	"log/slog"
	"net/http"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/metrics"
)

// webHandler is what --listen serves: metrics, health, and the JSON of the control socket that changes nothing.
func webHandler(b control.Backend, log *slog.Logger, readOnly func(*http.ServeMux)) http.Handler {
	return metrics.Handler(b, build(), log, readOnly)
}
