package main

import (
	"log/slog"
	"net/http"

	"dynamiccl/cmd/dynamiccld/internal/control"
)

// webHandler is what --listen serves: health, and the JSON of the control socket that changes nothing.
func webHandler(b control.Backend, _ *slog.Logger, readOnly func(*http.ServeMux)) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		if _, err := b.Status(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	readOnly(mux)
	return mux
}
