package live

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/lease"
	"dynamiccl/nccltuner"
)

// ending holds what a daemon holds that is ending until its store is written.
func (r *runRig) ending() *lease.Lock {
	r.Helper()
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		r.Fatal(err)
	}
	l, err := lease.TryEnd(r.dir)
	if err != nil || l == nil {
		r.Fatal(l, err)
	}
	return l
}

// Runs that come while a daemon takes seconds to end, one a rank, wait for it, say so, and share the next one.
func TestRunsWaitForADaemonThatEnds(t *testing.T) {
	t.Parallel()
	startsInTime(t, runsWaitForADaemonThatEnds)
}

// startsInTime tries again where a busy machine had no two seconds for a daemon's start, which runs say then.
func startsInTime(t *testing.T, runs func(*testing.T) (late bool)) {
	t.Helper()
	for try := 1; runs(t); try++ {
		if try == 4 {
			t.Fatal("no daemon started in time")
		}
	}
}

// late says that this run waited for its daemon's start in vain.
func (p *proc) late() bool {
	return strings.Contains(p.err.String(), "the daemon that was started takes more than 2s")
}

func runsWaitForADaemonThatEnds(t *testing.T) (late bool) {
	r := newRunRig(t)
	before := r.ending()
	var all []*proc
	for range 4 {
		all = append(all, r.run("--", "sh", "-c", "echo $NCCL_TUNER_PLUGIN; sleep 1").begin())
	}
	for _, p := range all {
		r.wait("a run's word", func() bool { return strings.Contains(p.err.String(), "waiting for it, for 10s at most") })
	}
	time.Sleep(time.Second)
	before.Release()
	st := r.daemon("the next daemon", anyDaemon)
	for _, p := range all {
		code := p.end()
		late = late || p.late()
		if code != 0 || !strings.Contains(p.out.String(), "dynamiccl") || !late && strings.Contains(p.err.String(), "plain NCCL") {
			t.Errorf("exit code %d, plugin %q:\n%s", code, p.out.String(), p.err.String())
		}
		p.wants(nccltuner.RunsLockName, "waiting for it, for 10s at most")
	}
	r.wait("the daemon's end", func() bool { return r.gone(st.PID) })
	return late
}

// A signal meanwhile is the command's, and nobody waits on: that would be for nine seconds from the run's word on.
func TestRunThatWaitsHearsSignals(t *testing.T) {
	t.Parallel()
	r := newRunRig(t)
	before := r.ending()
	defer before.Release()
	p := r.run("--", "sleep", "60").begin()
	r.wait("the run's word", func() bool { return strings.Contains(p.err.String(), "waiting for it") })
	began := time.Now()
	r.signal(p.Process.Pid, syscall.SIGTERM)
	p.end()
	if took := time.Since(began); took > 8*time.Second || p.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("%v after %v:\n%s", p.ProcessState, took, p.err.String())
	}
}

// A daemon that SIGTERM ends lets runs join, and has the directory until it has ended.
func TestRunBesideADaemonThatWasTold(t *testing.T) {
	t.Parallel()
	startsInTime(t, runBesideADaemonThatWasTold)
}

func runBesideADaemonThatWasTold(t *testing.T) (late bool) {
	r := newRunRig(t)
	dir, err := nccltuner.OpenDir(r.dir)
	if err == nil {
		err = dir.Lock()
	}
	if err != nil {
		t.Fatal(err)
	}
	p := r.run("--", "sh", "-c", "echo $NCCL_TUNER_PLUGIN").begin()
	time.Sleep(time.Second)
	if err := dir.Close(); err != nil {
		t.Fatal(err)
	}
	code := p.end()
	late = p.late()
	if code != 0 || !strings.Contains(p.out.String(), "dynamiccl") || !late && strings.Contains(p.err.String(), "plain NCCL") {
		t.Errorf("exit code %d, plugin %q:\n%s", code, p.out.String(), p.err.String())
	}
	if _, err := os.Stat(filepath.Join(r.dir, nccltuner.DaemonLogName)); err != nil {
		t.Error(err)
	}
	return late
}

// One that does not end for longer than anybody waits costs a program no more than that: it is tuned once another daemon can start.
func TestRunWithoutADaemonYet(t *testing.T) {
	t.Parallel()
	r := newRunRig(t)
	before := r.ending()
	fixed := r.run("--fixed-numerics", "--", "sh", "-c", "echo $NCCL_TUNER_PLUGIN").begin()
	p := r.run(append([]string{"--"}, r.ranks("late", 15_000, 3000)...)...).begin()
	const starts = "the program starts, and is tuned once there is a daemon"
	r.wait("the program's start", func() bool { return strings.Contains(p.err.String(), starts) })
	time.Sleep(time.Second)
	before.Release()
	r.daemon("the next daemon", anyDaemon)
	if code := p.end(); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, p.err.String())
	}
	p.wants("what was gained", "in total")
	if !strings.Contains(p.err.String(), "until it answers the program runs as plain NCCL") { // a machine that stands still for two seconds: it is said in other words
		p.wants("the program is tuned from here on")
	}
	if rep := r.compare("late"); rep.Compared != 15_000 || rep.Chosen == 0 {
		t.Errorf("%d of 15000 calls, %d chosen", rep.Compared, rep.Chosen)
	}
	// Which version the next daemon is cannot be known, and this is a promise.
	if code := fixed.end(); code != 0 || strings.TrimSpace(fixed.out.String()) != "" {
		t.Errorf("--fixed-numerics: exit code %d, plugin %q; want none", code, fixed.out.String())
	}
	fixed.wants("running as plain NCCL: --fixed-numerics: ")
}
