package live

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/nccltuner/ranklog"
)

const (
	quiet    = "h200x4-socket-2nodes-quiet"
	netLoad  = "h200x4-socket-2nodes-network-load"
	cpuLoad  = "h200x4-socket-2nodes-cpu-load"
	nvlink   = "h200x8-nvlink"
	checkout = "../../../.."
)

// Most tests wait for ranks that keep to a rate, so two run at once; those that judge what calls cost run alone (no t.Parallel).

// rig is one test's directory, store and daemon.
type rig struct {
	testing.TB
	build  Build
	tmp    string
	daemon Daemon
}

// built finds what the checkout was built into.
func built(t testing.TB) Build {
	t.Helper()
	root, err := filepath.Abs(checkout)
	if err != nil {
		t.Fatal(err)
	}
	build, err := BuildIn(root)
	if err != nil {
		t.Fatal(err)
	}
	return build
}

func newRig(t testing.TB, serveArgs ...string) *rig {
	t.Helper()
	build := built(t)
	tmp := t.TempDir()
	dir := filepath.Join(tmp, "run")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r := &rig{TB: t, build: build, tmp: tmp, daemon: Daemon{Build: build, Dir: dir, Log: filepath.Join(tmp, "daemon.log"),
		Args: append([]string{"--store", filepath.Join(tmp, "store.db"), "--log-level", "debug"}, serveArgs...)}}
	t.Cleanup(func() {
		if err := r.daemon.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(LastWords(r.daemon.Log))
		}
	})
	return r
}

func (r *rig) start() {
	r.Helper()
	if err := r.daemon.Start(r.Context()); err != nil {
		r.Fatal(err)
	}
}

// ranks prepares a run of the harness. args beginning with "--" replace nothing, they are added.
func (r *rig) ranks(name string, phases []Phase, args ...string) *Ranks {
	r.Helper()
	run := &Ranks{Build: r.build, Dir: r.daemon.Dir, Name: name, Folder: r.tmp, Phases: phases, Seed: 1,
		Args: append([]string{"--spawn", "--require-plugin"}, args...)}
	r.Cleanup(func() {
		if run.cmd != nil {
			run.Kill()
		}
	})
	return run
}

func (r *rig) begin(run *Ranks) {
	r.Helper()
	if err := run.Start(); err != nil {
		r.Fatal(err)
	}
}

// finish waits for the ranks and compares their logs: a disagreement fails every test.
func (r *rig) finish(run *Ranks) ranklog.Report {
	r.Helper()
	if err := run.Wait(); err != nil {
		r.Fatal(err)
	}
	return r.compare(run)
}

func (r *rig) compare(run *Ranks) ranklog.Report {
	r.Helper()
	logs, err := filepath.Glob(strings.Replace(run.LogPattern(), "%r", "*", 1))
	if err != nil {
		r.Fatal(err)
	}
	rep, err := ranklog.CompareFiles(logs...)
	if err != nil {
		r.Fatal(err)
	}
	if rep.Disagreements != 0 {
		r.Errorf("%d disagreements, first: %v", rep.Disagreements, rep.Details)
	}
	if rep.Compared == 0 {
		r.Error("no call was compared")
	}
	return rep
}

func (r *rig) status() control.Status {
	r.Helper()
	s, err := control.NewClient(r.daemon.Dir).Status(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	return s
}

// until waits for a condition of the daemon.
func (r *rig) until(what string, cond func(control.Status) bool) control.Status {
	r.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if s, err := control.NewClient(r.daemon.Dir).Status(context.Background()); err == nil && cond(s) {
			return s
		}
	}
	r.Fatalf("waited a minute for: %s; status %+v", what, r.status())
	return control.Status{}
}

// says reports whether the daemon's log has the text.
func (r *rig) says(text string) bool {
	log, err := os.ReadFile(r.daemon.Log)
	return err == nil && strings.Contains(string(log), text)
}

// noFilesLeft checks that nothing of the ranks stays behind.
func (r *rig) noFilesLeft() {
	r.Helper()
	var left []string
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		left = nil
		for _, pattern := range []string{"comm-*", "ring-*"} {
			files, err := filepath.Glob(filepath.Join(r.daemon.Dir, pattern))
			if err != nil {
				r.Fatal(err)
			}
			left = append(left, files...)
		}
		if len(left) == 0 {
			return
		}
	}
	r.Errorf("files left 30 s after the last rank: %v", left)
}
