package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"dynamiccl/cmd/internal/ending"
)

// process is the program running on its own.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	pipe   io.Closer // of stderr
	stderr *bufio.Reader
	said   strings.Builder
}

func startProgram(t *testing.T, args ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startCommand(t, exec.Command(exe, args...))
}

func startCommand(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd}
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	pipe, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.pipe, p.stderr = pipe, bufio.NewReader(pipe)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	limit := time.AfterFunc(4*time.Minute, func() { _ = p.cmd.Process.Kill() })
	t.Cleanup(func() { limit.Stop() })
	return p
}

// until reads lines up to one that contains text.
func (p *process) until(text string) {
	p.t.Helper()
	for {
		line, err := p.stderr.ReadString('\n')
		p.said.WriteString(line)
		if strings.Contains(line, text) {
			return
		}
		if err != nil {
			p.t.Fatalf("%q was not said, but:\n%s", text, p.said.String())
		}
	}
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// wait gives how the program ended.
func (p *process) wait() syscall.WaitStatus {
	p.t.Helper()
	rest, err := io.ReadAll(p.stderr)
	p.said.Write(rest)
	if err != nil {
		p.t.Fatal(err)
	}
	exit := new(exec.ExitError)
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return p.cmd.ProcessState.Sys().(syscall.WaitStatus)
}

func TestSignalKeepsAll(t *testing.T) {
	out := filepath.Join(t.TempDir(), "it's.dynp") // the quote must come back quoted
	p := startProgram(t, "--synthetic", "1", "--updates", "1000", "--out", out)
	p.until("1000 updates")
	p.signal(syscall.SIGTERM)
	if status := p.wait(); status.ExitStatus() != exitInterrupted {
		t.Fatalf("status %v: %s", status, p.said.String())
	}
	if want := `dynamiccld train --synthetic 1 --updates 1000 --out '` + strings.ReplaceAll(out, "'", `'\''`) + `' --resume`; !strings.Contains(p.said.String(), want) {
		t.Errorf("it does not say %s but:\n%s", want, p.said.String())
	}
	for _, file := range []string{out, out + ".ckpt"} {
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
}

// timeout(1) sends its signal twice in a row, to the program and to the program's group.
func TestSignalOfAGroupIsOne(t *testing.T) {
	out := filepath.Join(t.TempDir(), "p")
	for try := 1; ; try++ {
		p := startProgram(t, "--synthetic", "1", "--updates", "1000", "--out", out)
		p.until("1000 updates")
		began := time.Now()
		p.signal(syscall.SIGTERM)
		time.Sleep(ending.Told / 6)
		p.signal(syscall.SIGTERM)
		took := time.Since(began)
		status := p.wait()
		if status.ExitStatus() == exitInterrupted {
			break
		}
		if took < ending.Told || try == 5 { // else this process had no CPU meanwhile
			t.Fatalf("status %v, %v between the signals: %s", status, took, p.said.String())
		}
	}
	if _, err := os.Stat(out); err != nil {
		t.Error(err)
	}
}

// A second signal does not wait for the validation; the checkpoint was written before.
func TestSecondSignalStopsAtOnce(t *testing.T) {
	out := filepath.Join(t.TempDir(), "p")
	p := startProgram(t, "--synthetic", "1", "--updates", "1000", "--out", out)
	p.until("1000 updates")
	p.signal(syscall.SIGINT)
	p.until("a second signal stops at once")
	p.signal(syscall.SIGSTOP) // or a fast machine's validation is over
	time.Sleep(2 * ending.Told)
	p.signal(syscall.SIGINT)
	p.signal(syscall.SIGCONT)
	if status := p.wait(); !status.Signaled() || status.Signal() != syscall.SIGINT {
		t.Fatalf("status %v: %s", status, p.said.String())
	}
	if _, err := os.Stat(out + ".ckpt"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a policy was written without waiting for its validation")
	}
}

// Whoever reads what is said goes with a lost connection too.
func TestLostConnectionKeepsAll(t *testing.T) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // else the program inherits that these tests run under nohup
	t.Cleanup(func() { signal.Stop(hangups) })
	out := filepath.Join(t.TempDir(), "p")
	p := startProgram(t, "--synthetic", "1", "--updates", "1000", "--out", out)
	p.until("1000 updates")
	if err := p.pipe.Close(); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGHUP)
	exit := new(exec.ExitError)
	if err := p.cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted {
		t.Fatalf("%v", err)
	}
	for _, file := range []string{out, out + ".ckpt"} {
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
}

// nohup ignores SIGHUP for the program that it starts.
func TestIgnoredHangupStaysIgnored(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := startCommand(t, exec.Command("nohup", exe, "--synthetic", "1", "--updates", "1000", "--out", filepath.Join(t.TempDir(), "p")))
	p.until("1000 updates")
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, mask, _ := strings.Cut(string(status), "SigIgn:")
	ignored, err := strconv.ParseUint(strings.Fields(mask)[0], 16, 64)
	if err != nil || ignored&(1<<(syscall.SIGHUP-1)) == 0 {
		t.Errorf("ignored signals %x, %v", ignored, err)
	}
	p.signal(syscall.SIGKILL)
	p.wait()
}
