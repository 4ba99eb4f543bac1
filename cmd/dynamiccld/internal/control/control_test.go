package control_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/fakebackend"
	"dynamiccl/nccltuner"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tempDir is short: a socket's path has at most 107 bytes.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dyn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}
func (l *logBuffer) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.b.String() }

// start serves b in a directory of its own until the test ends.
func start(t *testing.T, b control.Backend, allow func(uint32) bool) (dir string, log *logBuffer, stop func()) {
	t.Helper()
	dir, log = tempDir(t), &logBuffer{}
	l, err := control.Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := control.NewServer(b, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})), func() time.Time { return fakebackend.Now })
	if allow != nil {
		control.SetAllowed(s, allow)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("serving: %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return dir, log, stop
}

func TestRoundTrip(t *testing.T) {
	b := fakebackend.Busy()
	dir, _, _ := start(t, b, nil)
	c, ctx := control.NewClient(dir), context.Background()
	st, err := c.Status(ctx)
	if err != nil || st.PID != 4242 || len(st.Comms) != 3 || st.Comms[1].Nodes != 2 || !st.Comms[2].Follows || st.Comms[2].PlanAgreed != 7 || st.Comms[2].Hosts != "met" || st.FindingCounts["congestion"] != 2 {
		t.Errorf("status %+v, %v", st, err)
	}
	buckets, err := c.Buckets(ctx)
	if err != nil || len(buckets) != 4 {
		t.Fatalf("buckets %+v, %v", buckets, err)
	}
	first := buckets[0]
	if first.Comm != "00000000deadbeef" || first.Choice != "Ring/LL128/24" || first.MinBytes != 4<<20 || first.MaxBytes != 8<<20-1 || first.NCCLVersion != "2.30.7" ||
		len(first.Tried) != 3 || !first.Since.Equal(fakebackend.Now.Add(-30*time.Minute)) || first.Bucket.Log2Bytes != 22 {
		t.Errorf("first bucket %+v", first)
	}
	if last := buckets[3]; last.Since != nil || last.DiagnosedAt != nil || last.Tried == nil {
		t.Errorf("last bucket %+v", last)
	}
	found, err := c.Findings(ctx)
	if err != nil || len(found) != 2 || !found[1].At.Equal(fakebackend.Now.Add(-10*time.Second)) || found[1].Diagnosis != "slow-rank" || found[1].AgoS != 10 {
		t.Errorf("findings %+v, %v", found, err)
	}
	raised, err := c.Alarms(ctx)
	if err != nil || len(raised) != 1 || raised[0] != (control.Alarm{Comm: first.Comm, Collective: "AllReduce", MinBytes: 64 << 10, AgoS: 601.5, Up: true, BySignal: true}) {
		t.Errorf("alarms %+v, %v", raised, err)
	}
	graphs, err := c.Replays(ctx)
	if err != nil || len(graphs) != 3 || graphs[0].Counter != nil || graphs[0].Changed != nil || st.Graphs == nil || *st.Graphs != (control.Graphs{Replays: 1040, Choices: 3, Changed: 1}) {
		t.Fatalf("graphs %+v, %v, in short %+v", graphs, err, st.Graphs)
	}
	if g := graphs[2]; g.Comm != first.Comm || g.Collective != "AllReduce" || g.Bytes != 96<<10 || g.Bucket != buckets[1].Bucket || g.Choice != "lsa/twoshot/16" ||
		g.Replays != 100 || g.NCCLVersion != "2.30.7" || g.Signal.MedianNs != 4410 || g.Counter.MedianNs != 1700 || !g.Last.Equal(fakebackend.Now.Add(-3*time.Second)) {
		t.Errorf("last choice in graphs %+v", g)
	}
	if g := graphs[1].Changed; g == nil || !g.At.Equal(fakebackend.Now.Add(-10*time.Minute)) || g.Signal != (control.Change{BeforeNs: 3610, AfterNs: 3980}) || g.Counter == nil {
		t.Errorf("change %+v", g)
	}
	links, err := c.Links(ctx)
	if err != nil || len(links) != 2 || links[0].Changed != nil || links[0].Diagnosis != "none" || len(links[0].Sizes) != 2 || links[0].Sizes[0].Counter != nil ||
		st.Links == nil || *st.Links != (control.Links{Trips: 4400, Links: 2, Changed: 1}) {
		t.Fatalf("links %+v, %v, in short %+v", links, err, st.Links)
	}
	if l := links[1]; l.Comm != first.Comm || l.Rank != 1 || l.Peer != 0 || l.Context != 2 || l.Backend != "gdaki" || l.Sizes[0].MinBytes != 4096 || l.Sizes[0].Counter.MedianNs != 7400 ||
		l.Diagnosis != "backend-fallback" || !l.Changed.Equal(fakebackend.Now.Add(-10*time.Minute)) || !l.Last.Equal(fakebackend.Now.Add(-3*time.Second)) {
		t.Errorf("link %+v", l)
	}
	n, err := c.Import(ctx, "allreduce,0,65536,tree,simple,2,1,-1,-1,1\n")
	if err != nil || n.Rules != 1 || len(b.Imported()) != 1 || b.Imported()[0].RegBuff != 1 {
		t.Errorf("import %+v, %v, backend has %+v", n, err, b.Imported())
	}
}

func TestImportIsAllOrNothing(t *testing.T) {
	b := fakebackend.Busy()
	dir, _, _ := start(t, b, nil)
	_, err := control.NewClient(dir).Import(context.Background(), "allreduce,0,1,ring,simple,2,1,-1\nallreduce,0,1,bagel,simple,2,1,-1\n")
	if err == nil || !strings.Contains(err.Error(), "line 2") || b.Imported() != nil {
		t.Errorf("%v, backend has %v", err, b.Imported())
	}
	_, err = control.NewClient(dir).Import(context.Background(), strings.Repeat("#\n", control.MaxImportBytes))
	if err == nil || !strings.Contains(err.Error(), "split the file") {
		t.Errorf("too large: %v", err)
	}
}

func TestBackendErrors(t *testing.T) {
	b := fakebackend.Busy()
	b.Refuse()
	dir, _, _ := start(t, b, nil)
	c, ctx := control.NewClient(dir), context.Background()
	for name, ask := range map[string]func() error{
		"status":   func() error { _, err := c.Status(ctx); return err },
		"buckets":  func() error { _, err := c.Buckets(ctx); return err },
		"findings": func() error { _, err := c.Findings(ctx); return err },
		"alarms":   func() error { _, err := c.Alarms(ctx); return err },
		"links":    func() error { _, err := c.Links(ctx); return err },
		"replays":  func() error { _, err := c.Replays(ctx); return err },
		"import":   func() error { _, err := c.Import(ctx, "allreduce,0,1,ring,simple,2,1,-1\n"); return err },
	} {
		refused := new(control.Error)
		if err := ask(); !errors.As(err, &refused) || refused.Status != http.StatusInternalServerError || !strings.Contains(err.Error(), fakebackend.ErrRefused.Error()) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOtherUserIsRefused: the kernel's word decides, and the refusal is logged with uid and pid.
func TestOtherUserIsRefused(t *testing.T) {
	b := fakebackend.Busy()
	dir, log, _ := start(t, b, func(uint32) bool { return false })
	c, refused := control.NewClient(dir), new(control.Error)
	_, err := c.Status(context.Background())
	if !errors.As(err, &refused) || refused.Status != http.StatusForbidden || !strings.Contains(err.Error(), fmt.Sprintf("uid %d may not", os.Geteuid())) {
		t.Errorf("status: %v", err)
	}
	if _, err := c.Import(context.Background(), "allreduce,0,1,ring,simple,2,1,-1\n"); !errors.As(err, &refused) || b.Imported() != nil {
		t.Errorf("import: %v", err)
	}
	if want := fmt.Sprintf("pid=%d", os.Getpid()); !strings.Contains(log.String(), "another user") || !strings.Contains(log.String(), want) {
		t.Errorf("log %s", log)
	}
}

func TestOwnUserAndRootOnly(t *testing.T) {
	s := control.NewServer(fakebackend.Empty(), slog.New(slog.DiscardHandler), time.Now)
	self := uint32(os.Geteuid())
	for uid, want := range map[uint32]bool{self: true, 0: true, self + 1: false, 65534: self == 65534} {
		if got := control.Allowed(s, uid); got != want {
			t.Errorf("uid %d: %v", uid, got)
		}
	}
}

func TestNoDaemon(t *testing.T) {
	dir := tempDir(t)
	ask := func() error { _, err := control.NewClient(dir).Status(context.Background()); return err }
	if err := ask(); !errors.Is(err, control.ErrNoDaemon) || !strings.Contains(err.Error(), "dynamiccld serve") {
		t.Errorf("no socket: %v", err)
	}
	staleSocket(t, dir)
	if err := ask(); !errors.Is(err, control.ErrNoDaemon) {
		t.Errorf("dead socket: %v", err)
	}
	// Another daemon would not get past one whose socket somebody removed.
	held, err := nccltuner.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := held.Lock(); err != nil {
		t.Fatal(err)
	}
	if err := ask(); !errors.Is(err, control.ErrNoDaemon) || strings.Contains(err.Error(), "dynamiccld serve") || !strings.Contains(err.Error(), fmt.Sprintf("process %d serves the directory", os.Getpid())) {
		t.Errorf("a daemon without its socket: %v", err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if who, is := control.Holder(dir); is {
		t.Errorf("%+v holds what nobody does", who)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := control.NewClient(file).Status(context.Background()); !errors.Is(err, control.ErrNoDaemon) || !strings.Contains(err.Error(), file+" is no directory; name the daemon's") {
		t.Errorf("a file for a directory: %v", err)
	}
	long := control.NewClient("/tmp/" + strings.Repeat("x", 120))
	if _, err := long.Status(context.Background()); err == nil || !strings.Contains(err.Error(), "shorter directory") {
		t.Errorf("long path: %v", err)
	}
}

// A daemon that ends between a question and its answer is none, however far the answer had come.
func TestDaemonThatEndsMeanwhile(t *testing.T) {
	for what, answer := range map[string]string{"nothing": "", "half an answer": "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"} {
		dir := tempDir(t)
		l, err := net.Listen("unix", filepath.Join(dir, control.SocketName))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for { // what has not been read when a socket is closed resets the connection
				conn, err := l.Accept()
				if err != nil {
					return
				}
				if answer != "" {
					_, _ = http.ReadRequest(bufio.NewReader(conn))
					_, _ = io.WriteString(conn, answer)
				}
				conn.Close()
			}
		}()
		for range 100 { // whether the question is written, or read, before the end
			if _, err = control.NewClient(dir).Status(context.Background()); !errors.Is(err, control.ErrNoDaemon) || !strings.Contains(err.Error(), "dynamiccld serve") {
				t.Fatalf("%s: %v", what, err)
			}
		}
		l.Close()
	}
}

// TestUnknownPath: the answer is JSON even where nothing is.
func TestUnknownPath(t *testing.T) {
	dir, _, _ := start(t, fakebackend.Empty(), nil)
	conn, err := net.Dial("unix", filepath.Join(dir, control.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "DELETE /v9/x HTTP/1.0\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var e control.Error
	if err := json.NewDecoder(resp.Body).Decode(&e); err != nil || resp.StatusCode != 404 || !strings.Contains(e.Message, "DELETE /v9/x") {
		t.Errorf("%d %+v %v", resp.StatusCode, e, err)
	}
}

// TestSilentClients: more connections than are served at once, none of which says anything, hold nobody up for longer
// than the read timeout, and the server can still be stopped.
func TestSilentClients(t *testing.T) {
	if os.Getenv("DYN_LONG") == "" {
		t.Log("short form: 10 silent clients; DYN_LONG=1 takes all slots")
		silent(t, 10)
		return
	}
	silent(t, 40)
}

func silent(t *testing.T, n int) {
	dir, _, _ := start(t, fakebackend.Empty(), nil)
	for range n {
		conn, err := net.Dial("unix", filepath.Join(dir, control.SocketName))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if _, err := control.NewClient(dir).Status(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestClientOfAnotherVersion: answers that are not ours name the remedy.
func TestClientOfAnotherVersion(t *testing.T) {
	dir := tempDir(t)
	l, err := net.Listen("unix", filepath.Join(dir, control.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	answers := []string{"{not json", `[{"collective":"SendRecv","min_bytes":4}]`, `[{"collective":"AllReduce","min_bytes":0}]`}
	i := 0
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answers[i]) })}
	go srv.Serve(l)
	defer srv.Close()
	for i = range answers {
		if _, err := control.NewClient(dir).Buckets(context.Background()); err == nil || !strings.Contains(err.Error(), "restart the daemon") {
			t.Errorf("%s: %v", answers[i], err)
		}
	}
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound) // what a daemon says to a question of later releases
		fmt.Fprint(w, `{"error":"no GET /v1/buckets here"}`)
	})
	if _, err := control.NewClient(dir).Buckets(context.Background()); err == nil || !strings.Contains(err.Error(), "no GET /v1/buckets here; daemon and command differ in version, restart the daemon") {
		t.Errorf("a question that the daemon does not know: %v", err)
	}
}

func TestContextEndsAQuestion(t *testing.T) {
	b := fakebackend.Busy()
	b.Block()
	dir, _, _ := start(t, b, nil)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := control.NewClient(dir).Status(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
