package service

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
)

// A port that somebody has costs a daemon that `run` started its metrics and nothing else.
func TestRunNeedsNoPort(t *testing.T) {
	busy, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	d := newFake()
	o, log, _ := setup(t, d)
	o.Loaded.Config.Listen, o.Loaded.Config.UntilUnused = busy.Addr().String(), true
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- Run(ctx, o) }()
	select {
	case <-d.began:
	case err := <-done:
		t.Fatalf("it did not start: %v", err)
	}
	if _, err := control.NewClient(o.Loaded.Config.Dir).Status(ctx); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, want := range []string{"there are no metrics", "address already in use", "choose another port with --listen"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, log)
		}
	}
}

// Whoever connects and says nothing leaves the daemon its descriptors, and the port is of use again once they are gone.
func TestWebIsBounded(t *testing.T) {
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var buffer lockedBuffer
	log, _ := NewLog(&buffer, "text", "info")
	go func() {
		defer close(done)
		serveWeb(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }), log)
	}()
	defer func() { cancel(); <-done }()
	var silent []net.Conn
	for range 2 * maxWebConns {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		silent = append(silent, c)
	}
	kept := 0
	for _, c := range silent {
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			kept++
		}
	}
	if kept != maxWebConns {
		t.Errorf("%d silent connections are kept, want %d", kept, maxWebConns)
	}
	for _, c := range silent {
		c.Close()
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	eventually(t, "an answer", func() bool {
		resp, err := client.Get("http://" + l.Addr().String())
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	})
}
