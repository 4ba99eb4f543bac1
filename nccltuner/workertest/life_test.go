package workertest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Options: help on request, else one line and exit code 2.
func TestOptions(t *testing.T) {
	run := func(args ...string) (int, string, string) {
		var stdout, stderr bytes.Buffer
		cmd := exec.Command(filepath.Join(build, "dynamiccl-worker"), args...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
	}
	if code, out, _ := run("--help"); code != 0 || !strings.Contains(out, "min_replays") || !strings.Contains(out, "Exit codes") {
		t.Errorf("--help: exit code %d\n%s", code, out)
	}
	for _, c := range []struct{ args, want string }{
		{"", "option --rank is missing"},
		{"--rank 0 --ranks 2", "option --device is missing"},
		{"--rank 2 --ranks 2 --device 0", "option --rank: want a rank below --ranks"},
		{"--rank 0 --ranks 65 --device 0", "option --ranks 65: want a whole number from 1 to 64"},
		{"--rank 0x --ranks 2 --device 0", "option --rank 0x: want a whole number from 0 to 63"},
		{"--rank 0 --ranks 2 --device 0 --max-bytes 1", "option --max-bytes 1: want a whole number from 4096"},
		{"--rank 0 --ranks 2 --device", "option --device: want a value"},
		{"--rank 0 --ranks 2 --device 0 --cpus 1024", "option --cpus 1024: want at most "},
		{"--rank 0 --ranks 2 --device 0 --cpus few", "option --cpus few: want a whole number from 0 to 1024"},
		{"--rang 0", "unknown option --rang"},
	} {
		if code, out, said := run(strings.Fields(c.args)...); code != 2 || out != "" || !strings.Contains(said, c.want) || !strings.HasSuffix(said, "see --help\n") {
			t.Errorf("%s: exit code %d, %q", c.args, code, said)
		}
	}
}

// hung starts two ranks that hang inside NCCL.
func hung(t *testing.T) group {
	t.Helper()
	g := startGroup(t, 2, sameEnv("FAKEGPU_TABLE="+writeTable(t, 2, 1), "FAKEGPU_FAULT=hang:bytes=65536"))
	g.init()
	for _, w := range g {
		w.send(callLine("AllReduce", 65536, 1))
	}
	if r, ok := g[0].receive(200 * time.Millisecond); ok {
		t.Fatalf("rank 0 does not hang: %+v", r)
	}
	return g
}

// ended waits for a process that nobody tells anything any more.
func (w *worker) ended(what string) int {
	w.t.Helper()
	done := make(chan int, 1)
	go func() { done <- w.wait() }()
	select {
	case code := <-done:
		return code
	case <-time.After(time.Minute):
		_ = w.cmd.Process.Kill()
		<-done
		w.t.Errorf("%s: the worker goes on", what)
		return -1
	}
}

// The end of standard input ends a worker, also one that hangs inside NCCL, and one that has nothing to do.
func TestEndOfInput(t *testing.T) {
	idle := startWorker(t, cleanEnv(), "--rank", "0", "--ranks", "2", "--device", "0")
	idle.ask(`{"do":"id"}`)
	for _, w := range append(hung(t), idle) {
		if err := w.stdin.Close(); err != nil {
			t.Fatal(err)
		}
		if code := w.ended("end of input"); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
}

// alive tells a process from one that is gone or only waits for somebody to ask for its exit code.
func alive(t *testing.T, pid int) bool {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return rest != "" && rest[0] != 'Z' && rest[0] != 'X'
}

// runUnder starts a worker below a shell; both inherit the given ends of pipes. It gives the worker's pid.
func runUnder(t *testing.T, stdin, stdout *os.File) (*exec.Cmd, int) {
	t.Helper()
	said, saying, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	shell := exec.Command("sh", "-c", `exec 4<&0; "$0" --rank 0 --ranks 2 --device 0 <&4 4<&- 3>&- & exec 4<&- 0</dev/null 1>/dev/null; echo $! >&3; exec 3>&-; wait`,
		filepath.Join(build, "dynamiccl-worker"))
	shell.Env, shell.Stdin, shell.Stdout, shell.ExtraFiles = cleanEnv(), stdin, stdout, []*os.File{saying}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	if err := saying.Close(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(said).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if err := said.Close(); err != nil {
		t.Fatal(err)
	}
	return shell, pid
}

// A worker goes with its parent although others hold its pipes open, and with the reader of its replies although its
// parent lives.
func TestEndOfParentOrReader(t *testing.T) {
	for _, which := range []string{"parent", "reader"} {
		input, orders, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		replies, output, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		shell, pid := runUnder(t, input, output)
		if err := output.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := orders.WriteString("{\"do\":\"id\"}\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(replies).ReadString('\n'); err != nil || !strings.HasPrefix(line, `{"id":"`) {
			t.Fatalf("%q, %v", line, err)
		}
		if !alive(t, pid) {
			t.Fatalf("worker %d is not there", pid)
		}
		if which == "parent" {
			err = shell.Process.Kill()
		} else {
			err = replies.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); alive(t, pid); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Errorf("the worker lives on without its %s", which)
				break
			}
		}
		_ = shell.Process.Kill() // the worker's end is its own, if it has come
		_ = shell.Wait()
		for _, f := range []*os.File{input, orders, replies} {
			if err := f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
				t.Error(err)
			}
		}
	}
}

// A rank keeps to its share of the CPUs, all of its threads; without --cpus to none.
func TestStaysOnItsCPUs(t *testing.T) {
	ranks := max(1, min(2, runtime.NumCPU()))
	allowed := func(path string) string {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, list, _ := strings.Cut(string(text), "Cpus_allowed_list:")
		list, _, _ = strings.Cut(list, "\n")
		return strings.TrimSpace(list)
	}
	for _, cpus := range []int{0, 1} {
		g := startGroup(t, ranks, sameEnv("FAKEGPU_TABLE="+writeTable(t, ranks, 1)), "--cpus", fmt.Sprint(cpus))
		g.init()
		seen := map[string]bool{}
		for _, w := range g {
			tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", w.cmd.Process.Pid))
			if err != nil || len(tasks) < 2 {
				t.Fatalf("%d threads: %v", len(tasks), err)
			}
			own := allowed(tasks[0])
			seen[own] = true
			for _, task := range tasks {
				if got := allowed(task); got != own {
					t.Errorf("--cpus %d: a thread may use %s, another one %s", cpus, got, own)
				}
			}
			if _, err := strconv.Atoi(own); cpus == 1 && err != nil || cpus == 0 && own != allowed("/proc/self/status") {
				t.Errorf("--cpus %d: %s", cpus, own)
			}
		}
		if cpus == 1 && len(seen) != ranks {
			t.Errorf("%d ranks share CPUs: %v", ranks, seen)
		}
		g.bye()
	}
}
