package live

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
)

// soon is how long a run of a command that does nothing, or env, may take beside a daemon that does not answer: a second for
// the question at the start, one or two for that at the end, and what a busy machine takes to start processes. Who waits for
// an answer takes ten seconds and more.
const soon = 9500 * time.Millisecond

func (p *proc) allWithin(limit time.Duration) int {
	p.t.Helper()
	began := time.Now()
	code := p.all()
	if took := time.Since(began); took > limit {
		p.t.Errorf("%v took %v, want at most %v", p.Args[1:], took.Round(time.Millisecond), limit)
	}
	return code
}

// stopped starts a daemon and stops it in its tracks, as a debugger or somebody's Ctrl-Z does.
func (r *runRig) stopped() (serve *proc, st control.Status) {
	r.Helper()
	serve = r.command(r.build.Daemon, "serve", "--dir", r.dir).begin()
	st = r.daemon("the daemon", anyDaemon)
	r.signal(st.PID, syscall.SIGSTOP)
	r.Cleanup(func() {
		_ = syscall.Kill(st.PID, syscall.SIGCONT)
		_ = syscall.Kill(st.PID, syscall.SIGTERM)
		if code := serve.end(); code != 0 {
			r.Errorf("the daemon ended with %d: %s", code, serve.err.String())
		}
	})
	return serve, st
}

// signal of SIGSTOP comes back when the process is stopped: its threads go on until one of them has had a CPU to hear of it.
func (r *runRig) signal(pid int, s syscall.Signal) {
	r.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		r.Fatal(err)
	}
	if s != syscall.SIGSTOP {
		return
	}
	r.wait("the process to stop", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			r.Fatal(err)
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		return len(fields) > 0 && fields[0] == "T"
	})
}

// A daemon that is stopped holds no program up: run, env and the end of run say what is wrong and the remedy, within seconds.
func TestStoppedDaemonHoldsNobodyUp(t *testing.T) {
	r := newRunRig(t)
	_, st := r.stopped()
	says := fmt.Sprintf("daemon %d is stopped and does not answer on %s/control.sock; let it go on with `kill -CONT %[1]d`", st.PID, r.dir)

	p := r.run("--", "sh", "-c", "echo $NCCL_TUNER_PLUGIN; exit 7")
	if code := p.allWithin(soon); code != 7 || !strings.Contains(p.out.String(), "dynamiccl") {
		t.Errorf("exit code %d, plugin %q; want the command's code and a plugin that waits for the daemon", code, p.out.String())
	}
	p.wants(says+"; until it answers the program runs as plain NCCL", "what was gained is not known: "+says)

	// Which version such a daemon is cannot be known, so it is not trusted with a promise.
	fixed := r.run("--fixed-numerics", "--", "sh", "-c", "echo $NCCL_TUNER_PLUGIN")
	if code := fixed.allWithin(soon); code != 0 || strings.TrimSpace(fixed.out.String()) != "" {
		t.Errorf("--fixed-numerics: exit code %d, plugin %q; want none", code, fixed.out.String())
	}
	fixed.wants("running as plain NCCL: --fixed-numerics: " + says)

	env := r.command(r.build.Daemon, "env")
	if code := env.allWithin(soon); code != 0 || !strings.Contains(env.out.String(), "export NCCL_TUNER_PLUGIN=") {
		t.Errorf("env: exit code %d:\n%s", code, env.out.String())
	}
	env.wants(says + "; until it answers programs run as with plain NCCL")
}

// Commands that ask a stopped daemon say what is wrong and the remedy after two seconds, not after ten as with one that hangs.
func TestCommandsBesideAStoppedDaemon(t *testing.T) {
	r := newRunRig(t)
	_, st := r.stopped()
	rules := filepath.Join(r.tmp, "rules.csv")
	if err := os.WriteFile(rules, []byte("allreduce,0,65536,tree,simple,2,1,-1,-1,-1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var all []*proc
	for _, args := range [][]string{{"status"}, {"status", "--json"}, {"table"}, {"why", "AllReduce", "64K"}, {"links"}, {"export"}, {"import", rules}, {"doctor"}} {
		all = append(all, r.command(r.build.Daemon, args...).begin())
	}
	for _, p := range all {
		code, took := p.end(), time.Since(began)
		said, want := p.err.String(), 3 // to a script it is one that is not there
		if p.Args[1] == "doctor" {
			said, want = p.out.String(), 1
		}
		if code != want || took > soon || !strings.Contains(said, fmt.Sprintf("daemon %d is stopped and does not answer on %s/control.sock", st.PID, r.dir)) || !strings.Contains(said, fmt.Sprintf("`kill -CONT %d`", st.PID)) {
			t.Errorf("%v: exit code %d after %v:\n%s", p.Args[1:], code, took.Round(time.Millisecond), said)
		}
		if strings.Contains(p.err.String(), "waiting for") {
			t.Errorf("%v waited for a daemon that is stopped:\n%s", p.Args[1:], p.err.String())
		}
	}
}

// A program that began beside a stopped daemon is tuned once the daemon goes on.
func TestStoppedDaemonGoesOn(t *testing.T) {
	t.Parallel()
	r := newRunRig(t)
	_, st := r.stopped()
	p := r.run(append([]string{"--"}, r.ranks("patient", 12_000, 3000)...)...).begin()
	r.wait("run's word on the daemon", func() bool { return strings.Contains(p.err.String(), "until it answers") })
	r.signal(st.PID, syscall.SIGCONT)
	if code := p.end(); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, p.err.String())
	}
	p.wants("what was gained", "in total")
	if rep := r.compare("patient"); rep.Compared != 12_000 || rep.Chosen == 0 {
		t.Errorf("%d of 12000 calls, %d chosen", rep.Compared, rep.Chosen)
	}
}

// A daemon of a run's own that stops under the command costs the end of run no more than the question, and ends by itself
// once it goes on.
func TestDaemonStopsUnderARun(t *testing.T) {
	t.Parallel()
	r := newRunRig(t)
	p := r.run("--", "cat")
	stdin, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.begin()
	st := r.daemon("the run's daemon", anyDaemon)
	r.signal(st.PID, syscall.SIGSTOP)
	began := time.Now()
	stdin.Close()
	if code := p.end(); code != 0 || time.Since(began) > soon {
		t.Errorf("exit code %d after %v", code, time.Since(began))
	}
	p.wants(fmt.Sprintf("what was gained is not known: daemon %d is stopped", st.PID))
	r.signal(st.PID, syscall.SIGCONT)
	r.wait("the daemon's end", func() bool { return r.gone(st.PID) })
}

// A daemon that is killed while a run asks it is none, and the run starts the next one.
func TestRunWhoseDaemonIsKilledMeanwhile(t *testing.T) {
	r := newRunRig(t)
	serve := r.command(r.build.Daemon, "serve", "--dir", r.dir).begin()
	st := r.daemon("the daemon", anyDaemon)
	r.signal(st.PID, syscall.SIGSTOP)
	p := r.run("--", "sh", "-c", "echo $NCCL_TUNER_PLUGIN").begin()
	time.Sleep(300 * time.Millisecond) // it asks for a second
	r.signal(st.PID, syscall.SIGKILL)
	if code := p.end(); code != 0 || !strings.Contains(p.out.String(), "dynamiccl") || strings.Contains(p.err.String(), "plain NCCL") {
		t.Errorf("exit code %d, plugin %q:\n%s", code, p.out.String(), p.err.String())
	}
	serve.end()
	r.noDaemon()
}

// What a daemon had learned is where the daemon keeps it, which may be another place than a run's own settings name.
func TestRunSaysWhoseStore(t *testing.T) {
	r := newRunRig(t)
	for store, says := range map[string]string{
		filepath.Join(r.tmp, "other.db"): "what it had learned is in the store " + filepath.Join(r.tmp, "other.db"),
		"none":                           "what it had learned is lost with it",
	} {
		serve := r.command(r.build.Daemon, "serve", "--dir", r.dir, "--store", store).begin()
		st := r.daemon("the daemon", anyDaemon)
		p := r.run("--", "sh", "-c", fmt.Sprintf("kill -9 %d; sleep 0.5", st.PID))
		if code := p.all(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		p.wants("what was gained is not known: the daemon has ended; " + says)
		serve.end()
	}
}

// NCCL_SYM_NOWIN_ENABLE of an outer run, or of a shell that has taken up env, is not the program's where this run would not set it: without
// the plugin NCCL's device kernels may be wrong, and with --fixed-numerics they add up otherwise.
func TestRunWithinARunLeavesDeviceKernels(t *testing.T) {
	r := newRunRig(t)
	const show = "sh -c 'echo [$NCCL_SYM_NOWIN_ENABLE]'"
	for before, want := range map[string]string{
		"":                                   "[1]",
		"NCCL_SYM_NOWIN_ENABLE=0 ":           "[0]",
		"DYNAMICCL_FIXED_NUMERICS=true ":     "[0]",
		"NCCL_PROTO=LL ":                     "[0]",
		"DYNAMICCL_DIR=/proc/none ":          "[]",
		"env -u LD_PRELOAD DYNAMICCL_X= ":    "[1]",
		"NCCL_TUNER_PLUGIN=theirs ":          "[1]",
		"env -u NCCL_TUNER_PLUGIN NCCL_X=1 ": "[1]",
	} {
		daemon := r.build.Daemon
		for _, line := range []string{`eval "$(` + daemon + ` env 2>/dev/null)"; ` + before + daemon + " run -q -- " + show,
			daemon + ` run -q -- sh -c "` + before + daemon + ` run -q -- sh -c 'echo [\$NCCL_SYM_NOWIN_ENABLE]'"`} {
			p := r.command("sh", "-c", line)
			if code := p.all(); code != 0 || strings.TrimSpace(p.out.String()) != want {
				t.Errorf("%s: exit code %d, %q, want %q\n%s", line, code, p.out.String(), want, p.err.String())
			}
		}
	}
	r.noDaemon()
}

// What a run asks for by variables holds for its program alone, as by flags, also where that run starts the daemon that others join.
func TestRunsVariablesAreItsOwn(t *testing.T) {
	r := newRunRig(t)
	first := r.run("-q", "--", "sh", "-c", "echo $DYNAMICCL_NO_EXPLORE $DYNAMICCL_FIXED_NUMERICS; sleep 3")
	first.Env = append(first.Env, "DYNAMICCL_NO_EXPLORE=1", "DYNAMICCL_FIXED_NUMERICS=true")
	first.begin()
	if st := r.daemon("the daemon", anyDaemon); !st.Explore {
		t.Error("the daemon explores for nobody")
	}
	if code := first.end(); code != 0 || first.out.String() != "true true\n" {
		t.Errorf("exit code %d, the program has %q", code, first.out.String())
	}
	r.noDaemon()
}
