package live

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
)

// ask runs one command of the real program against the rig's daemon.
func (r *rig) ask(args ...string) (out string, code int) {
	r.Helper()
	cmd := exec.Command(r.build.Daemon, args...)
	cmd.Env = append(os.Environ(), "DYNAMICCL_DIR="+r.daemon.Dir)
	text, err := cmd.Output()
	if err != nil && cmd.ProcessState == nil {
		r.Fatal(err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// A rank that joins late finds the others inside of their calls: it makes the same choices, and none before it is there.
func TestRankJoinsLate(t *testing.T) {
	for _, how := range []string{"--spawn", "--threads=4"} {
		t.Run(strings.Trim(how, "-"), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.start()
			run := r.ranks("late", []Phase{{quiet, 8000}})
			run.Args = []string{how, "--require-plugin", "--window", "512", "--join-late", "2:200"}
			run.Rate = 3000
			r.begin(run)
			if rep := r.finish(run); rep.Compared != 8000 || rep.Chosen == 0 {
				t.Errorf("%d calls compared, %d chosen; want 8000 and some", rep.Compared, rep.Chosen)
			}
			r.noFilesLeft()
		})
	}
}

// Every command that shows something, on a daemon that really tunes: as text, and as JSON that is JSON. What was exported
// goes back into the live daemon.
func TestCommandsOnALiveDaemon(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	run := r.ranks("seen", []Phase{{quiet, 30_000}})
	run.Rate = 3000
	r.begin(run)
	client := control.NewClient(r.daemon.Dir)
	var tuned control.Bucket
	var why string // asked while the choice holds: a daemon that learns may take it back before the next command
	r.until("a choice that is measured better, with its reasons", func(control.Status) bool {
		all, err := client.Buckets(r.Context())
		at := slices.IndexFunc(all, func(b control.Bucket) bool { return b.Choice != "default" && b.SpeedUpLow > 1 && b.Since != nil })
		if err != nil || at < 0 {
			return err != nil
		}
		tuned = all[at]
		why, _ = r.ask("why", tuned.Collective, strconv.FormatUint(tuned.MinBytes, 10), "--comm", tuned.Comm)
		return strings.Contains(why, "interval")
	})
	if !strings.Contains(why, "since") || !strings.Contains(why, "tried") {
		t.Errorf("why does not say since when, or what was tried:\n%s", why)
	}
	rules := filepath.Join(r.tmp, "rules.csv")
	size := strconv.FormatUint(tuned.MinBytes, 10)
	for _, c := range []struct {
		args []string
		code int
		want []string // in the text
	}{
		{[]string{"status"}, 0, []string{tuned.Comm}},
		{[]string{"table"}, 0, []string{tuned.Collective}},
		{[]string{"why", tuned.Collective, size}, 0, []string{"choice", "advantage", "diagnosis", "default"}},
		{[]string{"why", tuned.Collective, size, "--comm", tuned.Comm}, 0, []string{"choice", "advantage"}},
		{[]string{"export", "--format", "nccl-csv", "-o", rules}, 0, []string{"written"}},
		{[]string{"import", rules}, 0, []string{"imported"}},
		{[]string{"doctor"}, 1, []string{"daemon", "answers"}}, // this environment names no plugin
		{[]string{"version"}, 0, []string{"dynamiccld"}},
	} {
		out, code := r.ask(c.args...)
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%v does not say %q:\n%s", c.args, want, out)
			}
		}
		asJSON, jsonCode := r.ask(append(c.args, "--json")...)
		if code != c.code || jsonCode != c.code || !json.Valid([]byte(asJSON)) {
			t.Errorf("%v: exit codes %d and %d, want %d; JSON %s", c.args, code, jsonCode, c.code, asJSON)
		}
	}
	r.finish(run)
}

// SIGTERM in the middle of a run writes down what was learned; the next daemon starts from it and the ranks, which lived
// on, agree all along.
func TestSIGTERMKeepsWhatWasLearned(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	run := r.ranks("drain", []Phase{{quiet, 15_000}})
	run.Rate = 3000
	r.begin(run)
	r.until("a choice", func(s control.Status) bool {
		return len(s.Comms) == 1 && s.Comms[0].Active && s.Comms[0].PlanVersion > 20
	})
	live, err := control.NewClient(r.daemon.Dir).Buckets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	if err := r.daemon.Stop(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(started); took > 4900*time.Millisecond { // the least that anybody who does not answer is waited for
		t.Errorf("draining took %v", took)
	}
	out, code := r.ask("table", "--json", "--store", filepath.Join(r.tmp, "store.db"))
	var stored struct{ Buckets []control.Bucket }
	if err := json.Unmarshal([]byte(out), &stored); err != nil || code != 0 {
		t.Fatalf("the store after SIGTERM: exit code %d, %v, %s", code, err, out)
	}
	compared := 0
	for _, b := range live {
		at := slices.IndexFunc(stored.Buckets, func(s control.Bucket) bool { return s.Collective == b.Collective && s.MinBytes == b.MinBytes })
		if len(b.Tried) == 0 || at < 0 {
			continue // nothing of its own default was measured yet
		}
		compared++
		if stored.Buckets[at].Calls < b.Calls {
			t.Errorf("%s of %d bytes: %d calls are stored, %d had been seen before SIGTERM", b.Collective, b.MinBytes, stored.Buckets[at].Calls, b.Calls)
		}
		if s := stored.Buckets[at]; s.Choice == b.Choice && b.Since != nil && (s.Since == nil || s.Since.Sub(*b.Since).Abs() > 3*time.Second) {
			t.Errorf("%s of %d bytes: %s since %v before SIGTERM, stored since %v", b.Collective, b.MinBytes, b.Choice, b.Since, s.Since)
		}
	}
	if compared < len(live)/2 || compared == 0 {
		t.Errorf("%d of %d live buckets are stored", compared, len(live))
	}
	if r.says("starting from stored choices") {
		t.Fatal("the first daemon began with an empty store and says otherwise")
	}
	r.start()
	if rep := r.finish(run); rep.Chosen == 0 || rep.Compared != 15_000 {
		t.Errorf("%d compared, %d chosen", rep.Compared, rep.Chosen)
	}
	if !r.says("starting from stored choices") {
		t.Error("the second daemon does not start from what the first had learned")
	}
}

// SIGHUP on the real program: the file is read again, and a broken file changes nothing.
func TestSIGHUPReadsTheFileAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	file := filepath.Join(r.tmp, "config.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("no-explore: false\n")
	r.daemon.Args = append(r.daemon.Args, "--config", file)
	r.start()
	hangUp := func(text string) {
		t.Helper()
		write(text)
		if err := r.daemon.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	if !r.status().Explore {
		t.Fatal("exploration is off at the start")
	}
	hangUp("no-explore: perhaps\n")
	for deadline := time.Now().Add(time.Minute); !r.says("perhaps") && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	if !r.says("perhaps") || !r.status().Explore {
		t.Errorf("a broken file: said %v, exploration %v", r.says("perhaps"), r.status().Explore)
	}
	hangUp("no-explore: true\n")
	r.until("no exploration", func(s control.Status) bool { return !s.Explore })
}

// The user's choice is said once, however many communicators his process makes.
func TestUsersChoiceIsSaidOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	run := r.ranks("once", []Phase{{quiet, 600}})
	run.Args = []string{"--threads=4", "--require-plugin", "--comms", "5"}
	run.Rate, run.Env = 2000, []string{"NCCL_ALGO=Ring", "NCCL_DEBUG=INFO"}
	r.begin(run)
	if rep := r.finish(run); rep.Chosen != 0 {
		t.Errorf("%d calls chosen against NCCL_ALGO", rep.Chosen)
	}
	out, err := os.ReadFile(run.Output())
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(out), "NCCL_ALGO=Ring is set"); n != 1 {
		t.Errorf("said %d times by one process with 5 communicators of 4 ranks:\n%s", n, out)
	}
}
