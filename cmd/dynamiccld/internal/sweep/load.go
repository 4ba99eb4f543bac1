package sweep

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// LoadCommand is the hidden command of dynamiccld that makes load until its standard input ends.
const LoadCommand = "sweep-load"

// How much load there is unless somebody asks for another. Connections: as many as the recorded tables had.
const (
	loadConnections = 24
	settle          = 500 * time.Millisecond
)

// HostLoad is the number of connections or threads of a load, 0 where that means nothing; wanted is 0 for the usual one.
func HostLoad(load string, wanted int) int {
	switch {
	case load != LoadNetwork && load != LoadCPU:
		return 0
	case wanted > 0:
		return wanted
	case load == LoadNetwork:
		return loadConnections
	}
	return runtime.NumCPU()
}

func (o *Options) loadSize() int { return HostLoad(o.Load, o.LoadSize) }

// StartLoad starts the load of this host, if it is one (HostLoad), by the executable, dynamiccld. It ends with stop, and
// with this process however that ends. A load that ends by itself is an error, at once or of stop: what is measured without it
// must not be taken for what is measured under it.
func StartLoad(ctx context.Context, executable, load string, size int) (stop func() error, err error) {
	if size = HostLoad(load, size); size == 0 {
		return func() error { return nil }, nil
	}
	var said bytes.Buffer
	cmd := exec.Command(executable, LoadCommand, load, strconv.Itoa(size))
	cmd.Stderr = &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the load: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its state has the reason
		close(ended)
	}()
	stop = func() error {
		select {
		case <-ended:
			return fmt.Errorf("load %s has ended by itself (%v): what was measured since is without it; %s", load, cmd.ProcessState, cmp.Or(strings.TrimSpace(said.String()), "it said nothing"))
		default:
		}
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		<-ended // killed is what was asked for
		return nil
	}
	select {
	case <-time.After(settle):
	case <-ctx.Done():
	case <-ended:
		return nil, stop()
	}
	return stop, nil
}

// MakeLoad makes load until the reader ends.
func MakeLoad(kind string, size int, until io.Reader) error {
	if size < 1 {
		return fmt.Errorf("load of size %d: want 1 or more", size)
	}
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, until)
		close(ended)
	}()
	switch kind {
	case LoadNetwork:
		return loadNetwork(size, ended)
	case LoadCPU:
		loadCPU(size, ended)
		return nil
	}
	return fmt.Errorf("load %q: want %s or %s", kind, LoadNetwork, LoadCPU)
}

// loadNetwork writes through connections over loopback without pause.
func loadNetwork(size int, ended <-chan struct{}) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var open []io.Closer
	var all sync.WaitGroup
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
		all.Wait()
	}()
	open = append(open, listener)
	for range size {
		out, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			return err
		}
		in, err := listener.Accept()
		if err != nil {
			return errors.Join(err, out.Close())
		}
		open = append(open, out, in)
		all.Go(func() {
			buffer := make([]byte, 1<<20)
			for {
				if _, err := out.Write(buffer); err != nil {
					return // closed
				}
			}
		})
		all.Go(func() {
			buffer := make([]byte, 1<<20)
			for {
				if _, err := in.Read(buffer); err != nil {
					return
				}
			}
		})
	}
	<-ended
	return nil
}

// loadCPU spins in as many threads.
func loadCPU(size int, ended <-chan struct{}) {
	runtime.GOMAXPROCS(size + 1)
	var all sync.WaitGroup
	for range size {
		all.Go(func() {
			for n := uint64(1); ; n++ {
				if n%(1<<20) == 0 {
					select {
					case <-ended:
						return
					default:
					}
				}
			}
		})
	}
	all.Wait()
}
