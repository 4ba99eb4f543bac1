package live

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
)

// inContainer begins a command in a PID namespace of its own, with its own /proc, as containers have.
func inContainer(t *testing.T) []string {
	t.Helper()
	prefix := []string{"unshare", "--user", "--map-root-user", "--fork", "--pid", "--kill-child", "--mount-proc", "--"}
	if os.Geteuid() != 0 {
		prefix[2] = "--map-current-user"
	}
	if out, err := exec.Command(prefix[0], append(prefix[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("no PID namespace can be made here: %v: %s", err, out)
	}
	return prefix
}

// Ranks in a container, and their daemon is outside it: they agree on plain NCCL, the first says why, and so does the daemon, which
// leaves their files alone while they live, beside ranks of its own that it tunes, and removes what they leave when they are killed.
func TestRanksInAContainerWithoutTheirDaemon(t *testing.T) {
	t.Parallel()
	prefix := inContainer(t)
	r := newRig(t)
	r.start()
	run := r.ranks("inside", []Phase{{quiet, 12_000}})
	run.Rate, run.Prefix, run.Env = 3000, prefix, []string{"NCCL_DEBUG=INFO"}
	r.begin(run)
	for deadline := time.Now().Add(10 * time.Second); len(r.files()) != 5; time.Sleep(time.Millisecond) { // a record and four rings
		if time.Now().After(deadline) {
			t.Fatalf("the ranks' files: %v", r.files())
		}
	}
	before := r.files()
	time.Sleep(2500 * time.Millisecond) // a daemon sweeps once a second
	for file, inode := range before {
		if now := r.files()[file]; now != inode {
			t.Errorf("%s of a rank that lives was inode %d and is %d", file, inode, now)
		}
	}
	outside := r.ranks("outside", []Phase{{quiet, 3000}})
	outside.Rate = 3000
	r.begin(outside)
	if rep := r.finish(outside); rep.Chosen == 0 {
		t.Error("ranks beside the daemon were not tuned")
	}
	if rep := r.finish(run); rep.Compared != 12_000 || rep.Chosen != 0 {
		t.Errorf("%d of 12000 calls, %d chosen", rep.Compared, rep.Chosen)
	}
	text, err := os.ReadFile(run.Output())
	if said := strings.Count(string(text), "is in another PID namespace (container) than this program"); err != nil || said != 4 {
		t.Errorf("%d of 4 processes say why: %v\n%s", said, err, text)
	}
	if log, err := os.ReadFile(r.daemon.Log); err != nil || strings.Count(string(log), "in another PID namespace") != 1 {
		t.Errorf("the daemon does not say once what it leaves alone: %v\n%s", err, log)
	}
	dead := r.ranks("dead", []Phase{{quiet, 40_000}})
	dead.Rate, dead.Prefix = 3000, prefix
	r.begin(dead)
	for deadline := time.Now().Add(10 * time.Second); len(r.files()) != 5; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the ranks' files: %v", r.files())
		}
	}
	dead.Kill()
	if err := dead.Wait(); err == nil {
		t.Error("ranks that were killed ended well")
	}
	r.noFilesLeft()
}

// A run in a container whose directory a daemon outside serves does not take that for dead by its pid, and runs plain NCCL. Daemon and
// ranks in one container are like on a host.
func TestRunInAContainer(t *testing.T) {
	t.Parallel()
	prefix := inContainer(t)
	r := newRunRig(t)
	alone := append(append(prefix[1:len(prefix):len(prefix)], r.build.Daemon, "run", "--"), r.ranks("alone", 6000, 3000)...)
	p := r.command(prefix[0], alone...)
	if code := p.all(); code != 0 || strings.Contains(p.err.String(), "namespace") {
		t.Errorf("exit code %d:\n%s", code, p.err.String())
	}
	if rep := r.compare("alone"); rep.Chosen == 0 {
		t.Errorf("nothing was tuned where all is in one container:\n%s", p.err.String())
	}
	p = r.command(prefix[0], append(prefix[1:len(prefix):len(prefix)], r.build.Daemon, "run", "--", "sh", "-c", "setsid sleep 20 & sleep 1; exit 6")...)
	if code := p.all(); code != 6 || strings.Contains(p.err.String(), "stays for it") {
		t.Errorf("exit code %d:\n%s", code, p.err.String())
	}
	p.wants("and ends now with this process, which is process 1 of its container")

	outside := Daemon{Build: r.build, Dir: r.dir, Log: filepath.Join(r.tmp, "outside.log"), Args: []string{"--store", "none"}}
	if err := outside.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer outside.Stop()
	p = r.command(prefix[0], append(prefix[1:len(prefix):len(prefix)], r.build.Daemon, "run", "--", "sleep", "1.5")...)
	if code := p.all(); code != 0 || strings.Contains(p.err.String(), "has ended") {
		t.Errorf("exit code %d:\n%s", code, p.err.String())
	}
	p.wants("running as plain NCCL: the daemon of " + r.dir + " is in another PID namespace")
	for _, tc := range []struct {
		args []string
		says string
	}{{[]string{"serve", "--dir", r.dir, "--store", "none"}, "is served by a process in another PID namespace"},
		{[]string{"doctor", "--dir", r.dir}, "and is in another PID namespace than this command"}} {
		out, err := exec.Command(prefix[0], append(append(prefix[1:len(prefix):len(prefix)], r.build.Daemon), tc.args...)...).CombinedOutput()
		if !strings.Contains(string(out), tc.says) {
			t.Errorf("%v: %v\n%s", tc.args, err, out)
		}
	}
	if _, err := control.NewClient(r.dir).Status(t.Context()); err != nil {
		t.Errorf("the daemon outside: %v", err)
	}
}

// Containers of one host that share neither directory nor daemon, where NCCL takes them for one node: nobody is tuned, and each run says
// what the others need.
func TestRanksOfOneNodeInTwoDirectories(t *testing.T) {
	t.Parallel()
	r := newRunRig(t)
	var all []*proc
	for _, rank := range []string{"0", "1"} {
		p := r.run("--", r.build.Rank, "--rank", rank, "--sync", filepath.Join(r.tmp, "sync"), "--nranks", "2", "--nnodes", "1", "--job", "apart",
			"--require-plugin", "--phase", r.build.Table("h200x2-nvlink-quiet")+":6000", "--rate", "3000")
		p.Env = append(p.Env, "DYNAMICCL_DIR="+filepath.Join(r.tmp, "dir"+rank), "DYNAMICCL_STORE=none")
		all = append(all, p.begin())
	}
	for _, p := range all {
		if code := p.end(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		p.wants("nothing was tuned: 1 of 2 ranks have joined: it is tuned once the others have; those in other containers need the same DYNAMICCL_DIR and one PID namespace")
	}
}
