package live

import (
	"context"
	"math"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"dynamiccl/cmd/dynamiccld/internal/control"
)

var totalRatio = regexp.MustCompile(`in total ([0-9.]+)x NCCL's default`)

// The whole of it: a daemon is started, the program learns, what was gained is said and true, the store is written, and
// nothing is left.
func TestRunLearnsAndSaysWhatWasGained(t *testing.T) {
	r := newRunRig(t)
	p := r.run(append([]string{"--"}, r.ranks("learn", 9000, 3000)...)...)
	if code := p.all(); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, p.err.String())
	}
	r.noDaemon() // by the time that run ends
	p.wants("what was gained", "95% interval", "AllReduce", "trying others")
	rep := r.compare("learn")
	if rep.Chosen == 0 {
		t.Error("nothing was chosen")
	}
	said := totalRatio.FindStringSubmatch(p.err.String())
	if said == nil {
		t.Fatalf("no total in\n%s", p.err.String())
	}
	ratio, err := strconv.ParseFloat(said[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	// The harness knows what every call would have cost: what is said of the measured calls must be near to it.
	if truth := 1 / rep.Phases[0].OverDefault(); math.Abs(ratio/truth-1) > 0.05 || ratio < 1.02 {
		t.Errorf("said %.3fx, the ranks' logs say %.3fx", ratio, truth)
	}
	if n := r.stored(); n < 3 {
		t.Errorf("%d choices in the store after run has ended, want some", n)
	}

	// The next run uses what this one stored, and tries nothing.
	stored := r.run(append([]string{"--no-explore", "--"}, r.ranks("stored", 3000, 3000)...)...)
	if code := stored.all(); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, stored.err.String())
	}
	stored.wants("as stored", "stored choices ran at")
	if rep := r.compare("stored"); rep.Chosen == 0 || rep.Phases[0].OverDefault() > 1 {
		t.Errorf("%d of %d calls chosen, %.3f of NCCL's default", rep.Chosen, rep.Compared, rep.Phases[0].OverDefault())
	}
}

// A daemon that lives already is joined and stays; what it would have been told does not pass in silence.
func TestRunJoinsADaemon(t *testing.T) {
	t.Parallel()
	r := newRunRig(t)
	serve := r.command(r.build.Daemon, "serve", "--dir", r.dir, "--learner", "ucb").begin()
	st := r.daemon("the daemon", anyDaemon)
	p := r.run(append([]string{"--learner", "thompson", "--"}, r.ranks("join", 6000, 3000)...)...)
	if code := p.all(); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, p.err.String())
	}
	p.wants("--learner has no effect: daemon "+strconv.Itoa(st.PID), "learner ucb", "in total")
	if now, err := control.NewClient(r.dir).Status(context.Background()); err != nil || now.PID != st.PID {
		t.Errorf("the daemon did not stay: %+v, %v", now, err)
	}
	// Its own wish binds a run, not the daemon that it shares: this one explores, and not here.
	known := r.run(append([]string{"--no-explore", "--"}, r.ranks("known", 3000, 3000)...)...)
	if code := known.all(); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, known.err.String())
	}
	known.wants("as stored", "stored choices ran at")
	if err := serve.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := serve.end(); code != 0 {
		t.Errorf("the daemon ended with %d: %s", code, serve.err.String())
	}
}

// Two runs share the daemon that the first one started. Each tells of its own communicators, and the last one out ends it.
func TestTwoRuns(t *testing.T) {
	t.Parallel()
	r := newRunRig(t)
	first := r.run("--", "cat")
	stdin, err := first.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	first.begin()
	st := r.daemon("the first run's daemon", anyDaemon)
	second := r.run(append([]string{"--"}, r.ranks("second", 9000, 3000)...)...).begin()
	r.daemon("the second run's ranks", tunes)
	stdin.Close()
	if code := first.end(); code != 0 {
		t.Errorf("first: exit code %d", code)
	}
	first.wants("nothing was tuned: no communicator joined")
	if now := r.daemon("still a daemon", anyDaemon); now.PID != st.PID {
		t.Errorf("daemon %d became %d", st.PID, now.PID)
	}
	if code := second.end(); code != 0 {
		t.Errorf("second: exit code %d\n%s", code, second.err.String())
	}
	second.wants("in total")
	r.noDaemon()
	if rep := r.compare("second"); rep.Compared != 9000 {
		t.Errorf("%d of 9000 calls", rep.Compared)
	}
}

// Runs that start at the same moment end up with one daemon. Where starting it takes too long, as on a busy machine, others do not wait.
func TestManyRunsAtOnce(t *testing.T) {
	t.Parallel()
	r := newRunRig(t)
	var all []*proc
	for range 6 {
		all = append(all, r.run("--", "sleep", "0.3").begin())
	}
	for _, p := range all {
		code := p.end()
		late := strings.Contains(p.err.String(), "another run is starting the daemon") || strings.Contains(p.err.String(), "the daemon that was started takes more than")
		if code != 0 || strings.Contains(p.err.String(), "plain NCCL") && !late {
			t.Errorf("exit code %d: %s", code, p.err.String())
		}
	}
	r.noDaemonSoon()
}

// srun dynamiccld run ...: every rank has a run of its own, and the communicator is told of once.
func TestARunForEveryRank(t *testing.T) {
	t.Parallel()
	r := newRunRig(t)
	sync := r.tmp + "/sync"
	var all []*proc
	for rank := range 4 {
		args := r.ranks("each", 6000, 3000)
		args = append([]string{"--", args[0], "--rank", strconv.Itoa(rank), "--sync", sync}, args[2:]...)
		all = append(all, r.run(args...).begin())
	}
	told := 0
	for _, p := range all {
		if code := p.end(); code != 0 {
			t.Errorf("exit code %d: %s", code, p.err.String())
		}
		if strings.Contains(p.err.String(), "in total") {
			told++
		} else {
			p.wants("the run of another rank reports")
		}
	}
	if told != 1 {
		t.Errorf("%d runs told of the one communicator, want 1", told)
	}
	r.noDaemon()
	r.compare("each")
}

// The daemon dies under the command: it goes on, and run says so.
func TestRunsDaemonIsKilled(t *testing.T) {
	t.Parallel()
	r := newRunRig(t)
	p := r.run(append([]string{"--"}, r.ranks("widow", 9000, 3000)...)...).begin()
	st := r.daemon("a tuned communicator", tunes)
	if err := syscall.Kill(st.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code := p.end(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	p.wants("daemon "+strconv.Itoa(st.PID)+" has ended; the command goes on", "what was gained is not known")
	if rep := r.compare("widow"); rep.Compared != 9000 || rep.Chosen == 0 {
		t.Errorf("%d of 9000 calls, %d chosen", rep.Compared, rep.Chosen)
	}
}

// run is killed: its command goes on, tuned, and the daemon ends by itself, with its store written, after the last rank.
func TestRunIsKilled(t *testing.T) {
	t.Parallel()
	r := newRunRig(t)
	p := r.run(append([]string{"--"}, r.ranks("orphan", 9000, 3000)...)...)
	p.Stdout, p.Stderr = nil, nil // else waiting for run would wait for the command that has its streams
	p.begin()
	st := r.daemon("a tuned communicator", tunes)
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if code := p.end(); code != -1 {
		t.Errorf("exit code %d of a killed process", code)
	}
	r.wait("the ranks' and then the daemon's end", func() bool { return r.gone(st.PID) })
	if rep := r.compare("orphan"); rep.Compared != 9000 || rep.Truncated != 0 {
		t.Errorf("%d of 9000 calls, %d logs cut short", rep.Compared, rep.Truncated)
	}
	if n := r.stored(); n < 3 {
		t.Errorf("%d choices in the store, want some", n)
	}
	r.noDaemon()
}
