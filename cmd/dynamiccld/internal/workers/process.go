package workers

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// process is one rank.
type process struct {
	rank  int
	cmd   *exec.Cmd
	stdin io.WriteCloser
	log   string        // file that gets what it says on standard error
	gone  chan struct{} // closed once it has ended
}

// answer is one line of a rank, or its end.
type answer struct {
	rank int
	line []byte
	err  error
}

// maxLine bounds an answer: a rank that writes more is broken.
const maxLine = 1 << 20

// start starts the process of a rank. Its lines go into answers until it ends.
func start(s Spec, rank int, answers chan<- answer) (*process, error) {
	p := &process{rank: rank, log: filepath.Join(s.Logs, fmt.Sprintf("rank%d.log", rank)), gone: make(chan struct{})}
	logFile, err := os.Create(p.log)
	if err != nil {
		return nil, fmt.Errorf("log of rank %d: %w", rank, err)
	}
	defer logFile.Close()
	args := []string{"--rank", strconv.Itoa(rank), "--ranks", strconv.Itoa(s.Ranks), "--device", strconv.Itoa(rank),
		"--max-bytes", strconv.FormatUint(s.MaxBytes, 10)}
	if s.Nodes > 1 {
		args = append(args, "--per-node", strconv.Itoa(s.Ranks/s.Nodes))
	}
	if s.CPUs != 0 {
		args = append(args, "--cpus", strconv.Itoa(s.CPUs))
	}
	if s.Registered {
		args = append(args, "--registered", "1")
	}
	if s.NCCL != "" {
		args = append(args, "--nccl", s.NCCL)
	}
	p.cmd = exec.Command(s.Program, args...)
	p.cmd.Env = s.environ(rank)
	p.cmd.Stderr = logFile
	// A group of its own: a terminal's Ctrl-C is for the one who asks, and must not end ranks in the middle of a point.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting rank %d: %w; build it with `make`, or name it with --worker", rank, err)
	}
	go p.read(stdout, answers)
	return p, nil
}

// read hands on lines, then the end.
func (p *process) read(stdout io.Reader, answers chan<- answer) {
	defer close(p.gone)
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		answers <- answer{rank: p.rank, line: append([]byte(nil), lines.Bytes()...)}
	}
	_, _ = io.Copy(io.Discard, stdout) // a line that was too long: the rest must not block it
	err := p.cmd.Wait()
	switch {
	case lines.Err() != nil:
		err = lines.Err()
	case err == nil:
		err = fmt.Errorf("exit status 0")
	}
	answers <- answer{rank: p.rank, err: err}
}

func (p *process) send(r request) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = p.stdin.Write(append(line, '\n'))
	return err
}

// kill ends the process and what it may have started.
func (p *process) kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // it may have ended by itself
	_ = p.stdin.Close()
}

// lastWords are the end of what the rank has said on standard error; "": nothing.
func (p *process) lastWords() string {
	const lines, most = 12, 8 << 10
	text, err := os.ReadFile(p.log)
	if err != nil {
		return ""
	}
	text = text[max(0, len(text)-most):]
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
