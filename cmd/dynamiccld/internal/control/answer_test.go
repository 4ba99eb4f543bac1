package control_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/state"
)

// FuzzAnswer: whatever a daemon of another version, or something else on the socket, answers, a command gets an error or
// values that it can use.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{`{}`, `[]`, `null`, `{"pid":-1,"comms":[{"ranks":-5}]}`,
		`[{"collective":"AllReduce","min_bytes":4096,"speedup":-1e308,"tried":null}]`, `[{"collective":"AllReduce","min_bytes":4097}]`,
		`[{"diagnosis":"x","at":"0001-01-01T00:00:00Z"}]`, `{"rules":1e99}`, "\x00", `{"message":"no"}`} {
		f.Add([]byte(s), 200)
	}
	f.Add([]byte(`{"message":"no"}`), 500)
	dir, err := os.MkdirTemp("", "dyn")
	if err != nil {
		f.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", filepath.Join(dir, control.SocketName))
	if err != nil {
		f.Fatal(err)
	}
	type answer struct {
		body []byte
		code int
	}
	var next atomic.Pointer[answer]
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		a := next.Load()
		w.WriteHeader(a.code)
		w.Write(a.body) // the client may have gone
	})}
	go srv.Serve(l)
	defer srv.Close()
	c, ctx := control.NewClient(dir), context.Background()
	f.Fuzz(func(t *testing.T, body []byte, code int) {
		if code < 200 || code > 599 || code == 204 || code == 304 {
			return // not an answer with a body
		}
		next.Store(&answer{body, code})
		if _, err := c.Status(ctx); err == nil && code != http.StatusOK {
			t.Errorf("status code %d is no error", code)
		}
		buckets, err := c.Buckets(ctx)
		for _, b := range buckets {
			if err == nil && (b.Bucket.Collective >= actions.NumCollectives || b.Bucket.Log2Bytes >= state.NumBuckets) {
				t.Errorf("a bucket that does not exist: %+v", b)
			}
		}
		c.Findings(ctx) // an error or values: no panic is what is asked
		c.Import(ctx, "")
	})
}
