package live

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
)

// asked is a program that answers each line with a line.
type asked struct {
	*rig
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	said bytes.Buffer // on standard error, whole once it has ended
}

func startAsked(r *rig, cmd *exec.Cmd) *asked {
	r.Helper()
	p := &asked{rig: r, cmd: cmd}
	cmd.Stderr = io.MultiWriter(os.Stderr, &p.said)
	var err error
	if p.in, err = cmd.StdinPipe(); err != nil {
		r.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		r.Fatal(err)
	}
	return p
}

func (p *asked) ask(line string) (answer string) {
	p.Helper()
	if _, err := io.WriteString(p.in, line); err != nil {
		p.Fatal(err)
	}
	answer, err := p.out.ReadString('\n')
	if err != nil {
		p.Fatalf("%v after %q", err, answer)
	}
	return answer
}

// end gives what it prints without being asked.
func (p *asked) end() (rest string) {
	p.Helper()
	if err := p.in.Close(); err != nil {
		p.Error(err)
	}
	text, err := io.ReadAll(p.out)
	if err != nil {
		p.Error(err)
	}
	if err := p.cmd.Wait(); err != nil {
		p.Error(err)
	}
	return string(text)
}

// learns has more calls made until the choice of the bucket is one that is wanted.
func (r *rig) learns(more func(), log2Bytes uint8, wanted func(b *control.Bucket) bool) *control.Bucket {
	r.Helper()
	client := control.NewClient(r.daemon.Dir)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		more()
		buckets, err := client.Buckets(r.Context())
		if err != nil {
			r.Fatal(err)
		}
		var found *control.Bucket
		for i := range buckets {
			if uint8(buckets[i].Bucket.Log2Bytes) == log2Bytes {
				found = &buckets[i]
			}
		}
		if found != nil && wanted(found) {
			return found
		}
		if time.Now().After(deadline) {
			r.Fatalf("after a minute: %+v\n%+v", found, r.status())
		}
	}
}
