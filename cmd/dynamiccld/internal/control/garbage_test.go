package control_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/fakebackend"
)

// TestGarbage: whatever a client sends, the next one is served.
func TestGarbage(t *testing.T) {
	dir, _, _ := start(t, fakebackend.Busy(), nil)
	path := filepath.Join(dir, control.SocketName)
	for name, message := range map[string]string{
		"nothing":       "",
		"bytes":         "\x00\xff\xfe\x01\x02\r\n\r\n",
		"half a header": "GET /v1/status HTTP/1.1\r\nHost: x",
		"long header":   "GET /v1/status HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("y", 64<<10) + "\r\n\r\n",
		"long path":     "GET /" + strings.Repeat("y", 64<<10) + " HTTP/1.1\r\nHost: x\r\n\r\n",
		"bad length":    "POST /v1/import HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
		"huge length":   "POST /v1/import HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999\r\n\r\nallreduce",
		"bad chunks":    "POST /v1/import HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"other path":    "GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
		"other method":  "BREW /v1/status HTTP/1.1\r\nHost: x\r\n\r\n",
		"TLS":           "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"ring sample":   strings.Repeat("\x01\x00\x00\x00\x00\x00\x00\x00", 512),
	} {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := io.WriteString(conn, message); err != nil && !strings.HasPrefix(name, "long") {
			t.Errorf("%s: %v", name, err)
		}
		conn.Close()
		if _, err := control.NewClient(dir).Status(context.Background()); err != nil {
			t.Fatalf("after %s: %v", name, err)
		}
	}
}

// FuzzSocket: whatever bytes come, the server answers the next question.
func FuzzSocket(f *testing.F) {
	for _, s := range []string{"", "GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n", "POST /v1/import HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nallreduce", "\x00\xff", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"} {
		f.Add([]byte(s))
	}
	dir, err := os.MkdirTemp("", "dyn")
	if err != nil {
		f.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := control.Listen(dir)
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	s := control.NewServer(fakebackend.Busy(), slog.New(slog.DiscardHandler), time.Now)
	go func() { done <- s.Serve(ctx, l) }()
	defer func() { cancel(); <-done }()
	f.Fuzz(func(t *testing.T, data []byte) {
		conn, err := net.Dial("unix", filepath.Join(dir, control.SocketName))
		if err != nil {
			t.Fatal(err)
		}
		conn.Write(data) // the server may have closed already
		conn.Close()
		if _, err := control.NewClient(dir).Status(context.Background()); err != nil {
			t.Errorf("after %q: %v", data, err)
		}
	})
}
