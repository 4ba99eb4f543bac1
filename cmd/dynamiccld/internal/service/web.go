package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// maxWebConns bounds the connections to --listen, which every user of the host can make: each has a descriptor, and without any left the
// daemon reads no rank's files. Those beyond are closed at once.
const maxWebConns = 64

func listen(address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen: %w; choose another port with --listen, or leave it off", err)
	}
	return l, nil
}

func serveWeb(ctx context.Context, l net.Listener, h http.Handler, log *slog.Logger) {
	var open atomic.Int64
	srv := &http.Server{
		Handler: h, MaxHeaderBytes: 16 << 10, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ConnState: func(c net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				if open.Add(1) > maxWebConns {
					c.Close()
				}
			case http.StateClosed:
				open.Add(-1)
			}
		},
	}
	// A scrape that is cut off at the end of the daemon loses nothing.
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		log.Error("metrics are gone; tuning goes on", "err", err)
	}
}
