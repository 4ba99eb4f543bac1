package daemon

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/cmd/dynamiccld/internal/config"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/nccltuner"
	"dynamiccl/state"
	"dynamiccl/tuner"

	"go.uber.org/goleak"
)

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func testConfig(t *testing.T) config.Config {
	t.Helper()
	tmp := t.TempDir()
	return config.Config{Dir: filepath.Join(tmp, "run"), Store: filepath.Join(tmp, "store.db"), Learner: agents.NameUCB,
		Tick: time.Millisecond, SampleEvery: 4, Seed: 1, Budget: agents.DefaultExploreBudget}
}

func open(t *testing.T, cfg config.Config) (*Daemon, *logBuffer) {
	t.Helper()
	log := &logBuffer{}
	d, err := Open(cfg, "test", slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return d, log
}

func TestRunAnswersDrainsAndLeavesNothingBehind(t *testing.T) {
	defer goleak.VerifyNone(t)
	cfg := testConfig(t)
	d, _ := open(t, cfg)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()

	s, err := d.Status(ctx)
	if err != nil || s.PID != os.Getpid() || s.StoreState != "ok" || len(s.Comms) != 0 {
		t.Errorf("status %+v, %v", s, err)
	}
	cfg.NoExplore, cfg.SampleEvery = true, 8
	d.Reload(cfg)
	if s, err := d.Status(ctx); err != nil || s.Explore {
		t.Errorf("after a reload with no-explore: explore %v, %v", s.Explore, err)
	}
	if _, err := Open(cfg, "second", slog.New(slog.DiscardHandler)); !errors.Is(err, nccltuner.ErrDirectoryInUse) {
		t.Errorf("a second daemon in the directory: %v, want ErrDirectoryInUse", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := d.Status(canceled()); err == nil {
		t.Error("a daemon that has ended answered")
	}
	again, _ := open(t, cfg)
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// A daemon whose lock was removed publishes nothing more and ends: another one may have locked a new file.
func TestEndsWithoutItsLock(t *testing.T) {
	for name, spoil := range map[string]func(cfg config.Config) error{
		"removed":           func(cfg config.Config) error { return os.Remove(filepath.Join(cfg.Dir, nccltuner.DaemonLockName)) },
		"replaced":          func(cfg config.Config) error { return replaceLock(cfg.Dir) },
		"directory removed": func(cfg config.Config) error { return os.RemoveAll(cfg.Dir) },
		"file in its place": func(cfg config.Config) error {
			return errors.Join(os.RemoveAll(cfg.Dir), os.WriteFile(cfg.Dir, nil, 0o600))
		},
		"directory moved": func(cfg config.Config) error { return os.Rename(cfg.Dir, cfg.Dir+"-2") },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t)
			d, _ := open(t, cfg)
			defer d.Close()
			d.turn()
			if d.lost != nil {
				t.Fatal(d.lost)
			}
			if err := spoil(cfg); err != nil {
				t.Fatal(err)
			}
			d.publish(&comm{pending: &nccltuner.PlanSpec{}}) // which has no record: writing would crash
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := d.Run(ctx); !errors.Is(err, nccltuner.ErrLockLost) || !strings.Contains(err.Error(), cfg.Dir) {
				t.Error(err)
			}
		})
	}
}

func replaceLock(dir string) error {
	path := filepath.Join(dir, nccltuner.DaemonLockName)
	return errors.Join(os.Rename(path, path+".old"), os.WriteFile(path, nil, 0o600))
}

// A directory that cannot be looked into for now, here behind a link that leads to itself, is not lost.
func TestStaysWhereTheDirectoryCannotBeLookedAt(t *testing.T) {
	cfg := testConfig(t)
	d, _ := open(t, cfg)
	defer d.Close()
	if err := errors.Join(os.Rename(cfg.Dir, cfg.Dir+"-2"), os.Symlink(cfg.Dir, cfg.Dir)); err != nil {
		t.Fatal(err)
	}
	if d.sweep(); d.lost != nil {
		t.Error(d.lost)
	}
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func TestOpenRefuses(t *testing.T) {
	for name, change := range map[string]func(*config.Config){
		"unknown learner": func(c *config.Config) { c.Learner = "oracle" },
		"open directory": func(c *config.Config) {
			if err := os.Mkdir(c.Dir, 0o755); err != nil {
				t.Fatal(err)
			}
		},
		"bad sampling": func(c *config.Config) { c.SampleEvery = 3 },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t)
			change(&cfg)
			if _, err := Open(cfg, "test", slog.New(slog.DiscardHandler)); err == nil {
				t.Error("opened")
			}
		})
	}
}

// A store that cannot be used costs persistence and nothing else, and is said.
func TestBadStoresDoNotStopTheDaemon(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"another program's file": func(p string) error { return os.WriteFile(p, []byte("#!/bin/sh\nexit 0\n"), 0o600) },
		"a folder":               func(p string) error { return os.Mkdir(p, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t)
			if err := spoil(cfg.Store); err != nil {
				t.Fatal(err)
			}
			d, log := open(t, cfg)
			if state := d.storeState(); !strings.Contains(state, "memory only") {
				t.Errorf("store state %q does not say that choices are kept in memory only", state)
			}
			if !strings.Contains(log.String(), "store") {
				t.Errorf("nothing about the store in the log: %s", log)
			}
			if err := d.Close(); err != nil {
				t.Logf("closing: %v", err) // the daemon is ending; what was wrong has been said
			}
		})
	}
}

func TestGarbageFilesAreSaidOnceAndLeftAlone(t *testing.T) {
	cfg := testConfig(t)
	d, log := open(t, cfg)
	defer d.Close()
	for name, content := range map[string]string{"comm-00000000000000aa.shm": "garbage", "comm-zz.shm": "", "notes.txt": "mine"} {
		if err := os.WriteFile(filepath.Join(cfg.Dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		d.scan()
	}
	if n := strings.Count(log.String(), "left alone"); n != 3 {
		t.Errorf("%d warnings for 3 bad files in 5 scans: %s", n, log)
	}
	if _, err := os.Stat(filepath.Join(cfg.Dir, "notes.txt")); err != nil {
		t.Errorf("somebody's file is gone: %v", err)
	}
}

func TestAdviceFromRules(t *testing.T) {
	rules := []actions.Rule{{Collective: actions.AllReduce, MinBytes: 1024, MaxBytes: 4095, Algorithm: actions.Ring, Protocol: actions.LL,
		Channels: 8, Nodes: actions.Any, Ranks: 4, PipeOps: actions.Any, RegBuff: actions.Any}}
	want := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL, Channels: 8}
	prior := advice(rules, state.Shape{Ranks: 4, Nodes: 2})
	if len(prior) != 2 || prior[0].Action != want || prior[0].Key.Bucket != (state.Bucket{Collective: actions.AllReduce, Log2Bytes: 10}) {
		t.Errorf("advice %+v, want %v for 1 KiB and 2 KiB", prior, want)
	}
	if prior := advice(rules, state.Shape{Ranks: 8, Nodes: 2}); len(prior) != 0 {
		t.Errorf("advice of a rule for another shape: %+v", prior)
	}
}

func TestFindingsKeepTheNewest(t *testing.T) {
	d, _ := open(t, testConfig(t))
	defer d.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for i := range mostKept + 10 {
		d.note(tuner.Finding{AtNs: state.Ns(i)})
	}
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	all, err := d.Findings(ctx)
	cancel()
	<-ended
	if err != nil || len(all) != mostKept || all[0].AtNs != 10 || all[len(all)-1].AtNs != mostKept+9 {
		t.Errorf("%d findings from %v to %v, %v", len(all), all[0].AtNs, all[len(all)-1].AtNs, err)
	}
}

// Trouble that differs by a name, of a program that comes again and again, neither fills the log nor leaves no room for all that comes
// in the months after.
func TestTroubleIsSaidAfterThousands(t *testing.T) {
	d, log := open(t, testConfig(t))
	defer d.Close()
	const many = 10_000
	say := func() int {
		before := strings.Count(log.String(), "\n")
		for i := range many {
			d.once("communicator "+control.CommID(tuner.CommID(i)), errors.New("plan refused"))
		}
		return strings.Count(log.String(), "\n") - before
	}
	if n := say(); n < 1000 || n > many/4 {
		t.Errorf("of %d troubles %d are said", many, n)
	}
	if n := say(); n != 0 {
		t.Errorf("%d are said again at once", n)
	}
	d.saidNs -= state.Ns(2 * time.Hour)
	d.once("sweep", errors.New("something else"))
	if !strings.Contains(log.String(), "something else") {
		t.Error("hours later other trouble is not said")
	}
	d.once("sweep", errors.New("something else"))
	if n := strings.Count(log.String(), "something else"); n > 1 {
		t.Errorf("it is said %d times", n)
	}
}
