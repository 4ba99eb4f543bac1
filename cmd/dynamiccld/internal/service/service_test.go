package service

import (
	"bytes"
	"context"
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
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"dynamiccl/cmd/dynamiccld/internal/config"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/fakebackend"
	"dynamiccl/models"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeDaemon notes what happens to it, in order.
type fakeDaemon struct {
	*fakebackend.Backend
	mu     sync.Mutex
	events []string
	got    config.Config
	fail   error
	began  chan struct{}
}

func newFake() *fakeDaemon {
	return &fakeDaemon{Backend: fakebackend.Busy(), began: make(chan struct{})}
}

func (d *fakeDaemon) note(what string) { d.mu.Lock(); d.events = append(d.events, what); d.mu.Unlock() }
func (d *fakeDaemon) history() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.events, " ")
}

func (d *fakeDaemon) Run(ctx context.Context) error {
	d.note("run")
	close(d.began)
	if d.fail != nil {
		return d.fail
	}
	<-ctx.Done()
	d.note("drain")
	return nil
}

func (d *fakeDaemon) Reload(cfg config.Config) {
	d.mu.Lock()
	d.got = cfg
	d.mu.Unlock()
	d.note("reload")
}

func (d *fakeDaemon) Close() error { d.note("close"); return nil }

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}
func (l *lockedBuffer) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.b.String() }

// setup is a service that has not started.
func setup(t *testing.T, d *fakeDaemon) (Options, *lockedBuffer, chan os.Signal) {
	t.Helper()
	dir, err := os.MkdirTemp("", "dyn") // short, for the socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	cfg := config.Default(config.Host{Getenv: func(string) string { return "" }, EUID: 1})
	cfg.Dir, cfg.Listen = dir, "localhost:0"
	var buffer lockedBuffer
	log, level := NewLog(&buffer, "text", "info")
	hangUp := make(chan os.Signal, 1)
	return Options{
		Loaded: config.Loaded{Config: cfg}, HangUp: hangUp, Version: "v1", Log: log, Level: level, Now: time.Now,
		Open: func(config.Config, string, *slog.Logger) (Daemon, error) { return d, nil },
		Handler: func(b control.Backend, readOnly func(*http.ServeMux)) http.Handler {
			mux := http.NewServeMux()
			readOnly(mux)
			return mux
		},
	}, &buffer, hangUp
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 5 s", what)
		}
	}
}

func TestLife(t *testing.T) {
	d := newFake()
	o, log, _ := setup(t, d)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, o) }()
	<-d.began
	if st, err := control.NewClient(o.Loaded.Config.Dir).Status(ctx); err != nil || st.PID != 4242 {
		t.Errorf("over the socket: %+v, %v", st, err)
	}
	_, rest, _ := strings.Cut(log.String(), "address=")
	address, _, _ := strings.Cut(rest, "\n")
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + address + "/v1/status")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), `"pid":4242`) {
		t.Errorf("over TCP: %d %s, %v", resp.StatusCode, body, err)
	}
	if resp, err := client.Post("http://"+address+"/v1/import", "text/csv", strings.NewReader("")); err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("import over TCP: %v, %v", resp, err)
	} else {
		resp.Body.Close()
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := d.history(); got != "run drain close" {
		t.Errorf("history %q", got)
	}
	if _, err := os.Lstat(filepath.Join(o.Loaded.Config.Dir, control.SocketName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
	if conn, err := net.Dial("tcp", address); err == nil {
		conn.Close()
		t.Error("the metrics port is left open")
	}
}

func TestReload(t *testing.T) {
	d := newFake()
	o, log, hangUp := setup(t, d)
	next := o.Loaded
	var failing error
	var mu sync.Mutex
	set := func(change func(*config.Config), err error) {
		mu.Lock()
		defer mu.Unlock()
		change(&next.Config)
		failing = err
	}
	o.Reload = func() (config.Loaded, error) { mu.Lock(); defer mu.Unlock(); return next, failing }
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, o) }()
	<-d.began

	// Broken: nothing changes. Then live and restart settings at once. Then back.
	set(func(*config.Config) {}, errors.New("tick: nonsense"))
	hangUp <- syscall.SIGHUP
	eventually(t, "refusal", func() bool { return strings.Contains(log.String(), "tick: nonsense") })
	set(func(c *config.Config) { c.LogLevel, c.Tick, c.Learner = "debug", time.Second, "ucb" }, nil)
	hangUp <- syscall.SIGHUP
	eventually(t, "reload", func() bool { return strings.Contains(log.String(), "configuration reloaded") })
	if o.Level.Level() != slog.LevelDebug {
		t.Errorf("level %v", o.Level.Level())
	}
	d.mu.Lock()
	got := d.got
	d.mu.Unlock()
	if got.Tick != time.Second || got.Learner != models.DefaultLearner {
		t.Errorf("the daemon was given %+v", got)
	}
	for _, want := range []string{"setting needs a restart", "setting=learner", "wanted=ucb", "setting=tick"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, log)
		}
	}
	// Only a restart setting: the daemon is not bothered.
	set(func(c *config.Config) { c.Seed = 99 }, nil)
	hangUp <- syscall.SIGHUP
	eventually(t, "second reload", func() bool { return strings.Contains(log.String(), "setting=seed") })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := d.history(); got != "run reload drain close" {
		t.Errorf("history %q", got)
	}
}

// TestStartFails: whatever fails, what was opened is given back.
func TestStartFails(t *testing.T) {
	busy, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for name, spoil := range map[string]func(*Options){
		"open": func(o *Options) {
			o.Open = func(config.Config, string, *slog.Logger) (Daemon, error) { return nil, errors.New("locked") }
		},
		"socket": func(o *Options) { os.WriteFile(filepath.Join(o.Loaded.Config.Dir, control.SocketName), nil, 0o600) },
		"long directory": func(o *Options) { // refused before anything is made
			o.Loaded.Config.Dir = filepath.Join(o.Loaded.Config.Dir, strings.Repeat("x", 120))
		},
		"listen": func(o *Options) { o.Loaded.Config.Listen = busy.Addr().String() },
	} {
		d := newFake()
		o, _, _ := setup(t, d)
		spoil(&o)
		if err := Run(context.Background(), o); err == nil {
			t.Errorf("%s: no error", name)
		}
		want := "close"
		if name == "open" || name == "long directory" {
			want = ""
		}
		if got := d.history(); got != want {
			t.Errorf("%s: history %q", name, got)
		}
		if name == "listen" {
			if _, err := os.Lstat(filepath.Join(o.Loaded.Config.Dir, control.SocketName)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the socket is left: %v", err)
			}
		}
	}
}

func TestLoopFails(t *testing.T) {
	d := newFake()
	d.fail = fmt.Errorf("the loop broke")
	o, _, _ := setup(t, d)
	if err := Run(context.Background(), o); !errors.Is(err, d.fail) {
		t.Error(err)
	}
	if got := d.history(); got != "run close" {
		t.Errorf("history %q", got)
	}
}

func TestLog(t *testing.T) {
	var b bytes.Buffer
	log, level := NewLog(&b, "json", "warn")
	log.Info("hidden")
	SetLevel(level, "debug")
	SetLevel(level, "nonsense")
	log.Debug("shown")
	if got := b.String(); strings.Contains(got, "hidden") || !strings.Contains(got, `"msg":"shown"`) {
		t.Error(got)
	}
}
