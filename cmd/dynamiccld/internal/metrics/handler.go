package metrics

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/version"
)

// Handler serves /metrics, /healthz and what readOnly adds.
func Handler(b control.Backend, build version.Info, log *slog.Logger, readOnly func(*http.ServeMux)) http.Handler {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(&collector{b, build, log})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(log.Handler(), slog.LevelError),
		MaxRequestsInFlight: 4, // a scrape costs the daemon's loop two short calls
		Timeout:             2 * snapshotTimeout,
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { health(w, r, b) })
	readOnly(mux)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, fmt.Sprintf("no %s %s here; there are /metrics, /healthz, %s", r.Method, r.URL.Path, strings.Join(control.ReadOnlyPaths(), ", ")), http.StatusNotFound)
	})
	return mux
}

// health is whether the loop turns: a daemon that only listens tunes nothing.
func health(w http.ResponseWriter, r *http.Request, b control.Backend) {
	ctx, cancel := context.WithTimeout(r.Context(), snapshotTimeout)
	defer cancel()
	if _, err := b.Status(ctx); err != nil {
		http.Error(w, "the daemon's loop does not answer: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}
