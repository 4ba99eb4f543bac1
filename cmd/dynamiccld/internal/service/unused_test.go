package service

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/lease"
	"dynamiccl/nccltuner"
)

// rankedDaemon has as many rank processes as it is told.
type rankedDaemon struct {
	*fakeDaemon
	ranks chan int // holds the number
}

func (d rankedDaemon) Status(context.Context) (control.Status, error) {
	n := <-d.ranks
	d.ranks <- n
	return control.Status{Processes: n}, nil
}

// A daemon that `run` started ends when no run holds a lease and no rank lives, and not before; nobody can join it then.
func TestEndsOnceUnused(t *testing.T) {
	d := rankedDaemon{newFake(), make(chan int, 1)}
	d.ranks <- 1
	o, _, _ := setup(t, d.fakeDaemon)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	dir := o.Loaded.Config.Dir
	run, err := lease.Join(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	stopped := false
	go func() { untilUnused(ctx, func() { stopped = true }, dir, d, o.Log); close(ended) }()
	still := func(why string) {
		t.Helper()
		select {
		case <-ended:
			t.Fatalf("it ended with %s", why)
		case <-time.After(4 * lookEvery):
		}
	}
	still("a run and a rank")
	run.Release()
	still("a rank")
	<-d.ranks
	d.ranks <- 0
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		t.Fatal("unused, and it did not end within 5 s")
	}
	if !stopped {
		t.Error("the daemon was not stopped")
	}
	late, cut := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cut()
	if _, err := lease.Join(late, dir); err == nil {
		t.Error("a run joined a daemon that is ending")
	}
}

// SIGTERM ends it as any daemon, used or not.
func TestUsedDaemonEndsWithItsContext(t *testing.T) {
	o, _, _ := setup(t, newFake())
	ctx, cancel := context.WithCancel(context.Background())
	run, err := lease.Join(ctx, o.Loaded.Config.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer run.Release()
	cancel()
	untilUnused(ctx, func() { t.Error("stopped twice") }, o.Loaded.Config.Dir, newFake(), o.Log)
}

// A directory that somebody removed, as one of a killed run, keeps no daemon, whatever rank it thinks lives there.
func TestEndsWithItsDirectory(t *testing.T) {
	d := rankedDaemon{newFake(), make(chan int, 1)}
	d.ranks <- 1
	o, _, _ := setup(t, d.fakeDaemon)
	dir := filepath.Join(o.Loaded.Config.Dir, "gone")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	stopped := false
	untilUnused(ctx, func() { stopped = true }, dir, d, o.Log)
	if !stopped || ctx.Err() != nil {
		t.Errorf("stopped: %v, %v", stopped, ctx.Err())
	}
}

// Where the lock cannot be looked at, for want of descriptors for one, the daemon stays for now and says so once, and ends when it can.
func TestLockThatCannotBeLookedAt(t *testing.T) {
	d := rankedDaemon{newFake(), make(chan int, 1)}
	d.ranks <- 0
	o, log, _ := setup(t, d.fakeDaemon)
	dir := o.Loaded.Config.Dir
	path := filepath.Join(dir, nccltuner.RunsLockName)
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	stopped := make(chan struct{})
	ended := make(chan struct{})
	go func() { untilUnused(ctx, func() { close(stopped) }, dir, d, o.Log); close(ended) }()
	select {
	case <-stopped:
		t.Fatal("it ended, and nobody knows whether it is used")
	case <-time.After(4 * lookEvery):
	}
	if n := strings.Count(log.String(), "cannot be found out"); n != 1 {
		t.Errorf("said %d times:\n%s", n, log)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	<-ended
	select {
	case <-stopped:
	default:
		t.Error("it can look again, is unused, and stays")
	}
}
