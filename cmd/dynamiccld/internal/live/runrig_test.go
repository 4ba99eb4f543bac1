package live

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/nccltuner/ranklog"
)

// runRig is a user who starts programs with `dynamiccld run`: a directory, a store, no daemon.
type runRig struct {
	*testing.T
	build      Build
	tmp, dir   string
	store      string
	daemonPIDs []int // seen alive: none may outlive the test
}

func newRunRig(t *testing.T) *runRig {
	t.Helper()
	tmp := t.TempDir()
	r := &runRig{T: t, build: built(t), tmp: tmp, dir: filepath.Join(tmp, "run"), store: filepath.Join(tmp, "store.db")}
	if err := os.WriteFile(filepath.Join(tmp, "config.yaml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, pid := range r.daemonPIDs {
			if !r.gone(pid) {
				t.Errorf("daemon %d outlived the test", pid)
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
	return r
}

// proc is one started program and what it said.
type proc struct {
	*exec.Cmd
	t        *testing.T
	out, err lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// command prepares a program in the user's environment; nothing of it is started.
func (r *runRig) command(name string, args ...string) *proc {
	p := &proc{Cmd: exec.Command(name, args...), t: r.T}
	p.Env = append(cleanEnvironment(), "DYNAMICCL_DIR="+r.dir, "DYNAMICCL_STORE="+r.store,
		"DYNAMICCL_CONFIG="+filepath.Join(r.tmp, "config.yaml"), "HOME="+r.tmp)
	p.Stdout, p.Stderr = &p.out, &p.err
	p.WaitDelay = 20 * time.Second
	return p
}

// run prepares `dynamiccld run`.
func (r *runRig) run(args ...string) *proc {
	return r.command(r.build.Daemon, append([]string{"run"}, args...)...)
}

// ranks is the command line of a job of the rank harness; its logs can be compared.
func (r *runRig) ranks(job string, calls, rate int, more ...string) []string {
	return append([]string{r.build.Rank, "--spawn", "--require-plugin", "--job", job, "--seed", "1", "--rate", strconv.Itoa(rate),
		"--log", filepath.Join(r.tmp, job+"-%r.log"), "--phase", fmt.Sprintf("%s:%d", r.build.Table(quiet), calls)}, more...)
}

func (r *runRig) compare(job string) ranklog.Report {
	r.Helper()
	logs, err := filepath.Glob(filepath.Join(r.tmp, job+"-*.log"))
	if err != nil {
		r.Fatal(err)
	}
	rep, err := ranklog.CompareFiles(logs...)
	if err != nil {
		r.Fatal(err)
	}
	if rep.Disagreements != 0 || rep.Compared == 0 {
		r.Errorf("%s: %d calls compared, %d disagreements: %v", job, rep.Compared, rep.Disagreements, rep.Details)
	}
	return rep
}

func (p *proc) begin() *proc {
	p.t.Helper()
	if err := p.Start(); err != nil {
		p.t.Fatal(err)
	}
	return p
}

// end waits and gives the exit code; of a signal -1.
func (p *proc) end() int {
	p.t.Helper()
	var exit *exec.ExitError
	if err := p.Wait(); err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return p.ProcessState.ExitCode()
}

// all runs to the end.
func (p *proc) all() int { p.t.Helper(); return p.begin().end() }

// wants checks what was said on standard error.
func (p *proc) wants(texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		if !strings.Contains(p.err.String(), text) {
			p.t.Errorf("standard error does not say %q:\n%s", text, p.err.String())
		}
	}
}

func (r *runRig) wait(what string, cond func() bool) {
	r.Helper()
	for deadline := time.Now().Add(time.Minute); !cond(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.Fatalf("waited a minute for: %s", what)
		}
	}
}

// daemon waits for a daemon that says what cond wants.
func (r *runRig) daemon(what string, cond func(control.Status) bool) (st control.Status) {
	r.Helper()
	r.wait(what, func() bool {
		var err error
		st, err = control.NewClient(r.dir).Status(context.Background())
		return err == nil && cond(st)
	})
	r.daemonPIDs = append(r.daemonPIDs, st.PID)
	return st
}

func anyDaemon(control.Status) bool { return true }

func tunes(st control.Status) bool { return len(st.Comms) > 0 && st.Comms[0].PlanVersion > 3 }

func (r *runRig) gone(pid int) bool {
	// A daemon whose `run` was killed is a zombie where nobody collects orphans; it has ended all the same.
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func (r *runRig) noDaemon() {
	r.Helper()
	if st, err := control.NewClient(r.dir).Status(context.Background()); !errors.Is(err, control.ErrNoDaemon) {
		r.Errorf("daemon %d lives: %v", st.PID, err)
	}
}

// noDaemonSoon waits for the end of one that nobody waited for, which may still be starting.
func (r *runRig) noDaemonSoon() {
	r.Helper()
	r.wait("no daemon", func() bool {
		_, err := control.NewClient(r.dir).Status(context.Background())
		return errors.Is(err, control.ErrNoDaemon)
	})
}

// stored counts the choices in the store that are not NCCL's default.
func (r *runRig) stored() int {
	r.Helper()
	p := r.command(r.build.Daemon, "table", "--store", r.store)
	if code := p.all(); code != 0 {
		r.Fatalf("reading the store: exit code %d, %s", code, p.err.String())
	}
	return strings.Count(p.out.String(), "Ring/") + strings.Count(p.out.String(), "Tree/")
}
