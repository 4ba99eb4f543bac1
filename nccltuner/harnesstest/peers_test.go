package harnesstest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dynamiccl/nccltuner/ranklog"
)

// started are ranks that were started one by one, as a launcher does.
type started struct {
	cmds   []*exec.Cmd
	stderr []*bytes.Buffer
}

func startRanks(t *testing.T, env []string, n int, args ...string) *started {
	t.Helper()
	s := &started{}
	for r := range n {
		cmd := command(t, env, append([]string{"--rank", fmt.Sprint(r)}, args...)...)
		stderr := &bytes.Buffer{}
		cmd.Stderr = stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		s.cmds, s.stderr = append(s.cmds, cmd), append(s.stderr, stderr)
	}
	return s
}

// wait gives the exit codes; -1 for a killed rank.
func (s *started) wait() []int {
	var codes []int
	for _, cmd := range s.cmds {
		_ = cmd.Wait() // a code other than 0 is a result here
		codes = append(codes, cmd.ProcessState.ExitCode())
	}
	return codes
}

func TestDeadPeerStopsTheOthers(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "r%r.log")
	s := startRanks(t, nil, 4, "--sync", filepath.Join(dir, "sync"), "--table", twoNodes.write(t), "--calls", "1000000", "--rate", "5000",
		"--log", log)
	waitFor(t, "some calls", func() bool {
		info, err := os.Stat(filepath.Join(dir, "r2.log"))
		return err == nil && info.Size() > 0
	})
	if err := s.cmds[2].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	codes := s.wait()
	for r, code := range codes {
		want, message := 3, "rank 2 (pid"
		if r == 2 {
			want, message = -1, ""
		}
		// A rank may also notice first that another one has stopped because of rank 2.
		if code != want || !strings.Contains(s.stderr[r].String(), message) && !strings.Contains(s.stderr[r].String(), " left after") {
			t.Errorf("rank %d: exit code %d, %q", r, code, s.stderr[r])
		}
	}
	if all := fmt.Sprint(s.stderr); !strings.Contains(all, "rank 2 (pid") || !strings.Contains(all, "died after") {
		t.Errorf("nobody says that rank 2 died: %s", all)
	}
	rep := compare(t, strings.Replace(log, "%r", "%d", 1), 4)
	if rep.Compared == 0 || rep.Compared > rep.Calls {
		t.Errorf("%d of %d calls compared", rep.Compared, rep.Calls)
	}
	r := run(t, nil, "--rank", "0", "--sync", filepath.Join(dir, "sync"), "--table", twoNodes.write(t))
	if r.code != 2 || !strings.Contains(r.stderr, "name a new one for every run") {
		t.Errorf("used sync file: exit code %d: %s", r.code, r.stderr)
	}
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited 20 s for %s", what)
		}
	}
}

func TestLeaveMidRun(t *testing.T) {
	log := filepath.Join(t.TempDir(), "r%r.log")
	for _, how := range []string{"--spawn", "--threads=4"} {
		r := run(t, nil, how, "--table", twoNodes.write(t), "--calls", "2000", "--leave", "1:777", "--log", log)
		if r.code != 5 || !strings.Contains(r.stderr, "rank 1 (pid") || !strings.Contains(r.stderr, "left after 777 calls") {
			t.Errorf("%s: exit code %d: %s", how, r.code, r.stderr)
		}
		if rep := compare(t, strings.Replace(log, "%r", "%d", 1), 4); rep.Compared != 777 {
			t.Errorf("%s: %d calls compared, want the 777 that rank 1 made", how, rep.Compared)
		}
	}
}

func TestJoinLate(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "r%r.log")
	env := []string{"NCCL_TUNER_PLUGIN=dynamiccl", "NCCL_PROFILER_PLUGIN=dynamiccl", "DYNAMICCL_DIR=" + t.TempDir()}
	for _, how := range []string{"--spawn", "--threads=8"} {
		mustRun(t, env, how, "--table", oneNode.write(t), "--calls", "3000", "--join-late", "5:60", "--log", log, "--require-plugin")
		if rep := compare(t, strings.Replace(log, "%r", "%d", 1), 8); rep.Compared != 3000 {
			t.Errorf("%s: %d calls compared, want 3000", how, rep.Compared)
		}
	}
}

// The window bounds how far ranks get apart, without it a rank runs to its end alone.
func TestWindow(t *testing.T) {
	table := twoNodes.write(t)
	mustRun(t, nil, "--rank", "2", "--window", "0", "--table", table, "--calls", "100")
	cmd := command(t, nil, "--rank", "2", "--window", "32", "--table", table, "--calls", "100000", "--sync", filepath.Join(t.TempDir(), "sync"),
		"--log", filepath.Join(t.TempDir(), "log"))
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond) // long enough for all calls, if nothing held it
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if out, _ := io.ReadAll(stderr); len(out) != 0 {
		t.Errorf("a rank that waits for others said %s", out)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != -1 {
		t.Errorf("a rank whose peers are missing ended by itself: %v", err)
	}
}

// A log that cannot be written whole is named as the file that it is.
func TestLogOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/dev/full", filepath.Join(dir, "r0.log")); err != nil {
		t.Fatal(err)
	}
	r := run(t, nil, "--threads=8", "--table", oneNode.write(t), "--calls", "100", "--log", filepath.Join(dir, "r%r.log"))
	if r.code == 0 || !strings.Contains(r.stderr, "log "+filepath.Join(dir, "r0.log")+": not everything could be written") || strings.Contains(r.stderr, "%r") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
}

// Two runs with one seed make the same calls and find the same times, threads or processes alike.
func TestDeterministic(t *testing.T) {
	dir := t.TempDir()
	table := oneNode.write(t)
	var reports []ranklog.Report
	for i, how := range []string{"--spawn", "--threads=8", "--spawn"} {
		log := filepath.Join(dir, fmt.Sprintf("%d-r%%r.log", i))
		seed := []string{"7", "7", "8"}[i]
		mustRun(t, nil, how, "--table", table, "--calls", "1000", "--comms", "3", "--group", "4,0.3", "--seed", seed, "--log", log)
		reports = append(reports, compare(t, strings.Replace(log, "%r", "%d", 1), 8))
	}
	a, b, c := fmt.Sprintf("%+v", reports[0]), fmt.Sprintf("%+v", reports[1]), fmt.Sprintf("%+v", reports[2])
	if a != b {
		t.Errorf("the same seed gave\n%s\nand\n%s", a, b)
	}
	if a == c {
		t.Errorf("seeds 7 and 8 gave the same run: %s", a)
	}
}
