package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/forced"
	"dynamiccl/cmd/dynamiccld/internal/live"
)

// Options of a demo.
type Options struct {
	Build   live.Build
	Learner string
	Policy  string // file; "": the shipped one
	Budget  string // share that exploration may lose, as serve takes it; "": serve's default
	Seconds int    // that the rank processes run
	Seed    uint64
	Keep    bool // leave the temporary folder
	Out     io.Writer
	Redraw  bool // Out is a terminal
}

// job is one communicator's set of rank processes.
type job struct {
	name   string
	title  string
	tables []string // one a phase
	phases []string
}

// rate is calls a second of each rank: slower than on GPUs, so that 13 processes fit on two cores. What is added up is
// the recorded time of each call.
const rate = 1200

const numPhases = 4

var jobs = []job{
	{name: "nvlink", title: "8 ranks, 8x H200 NVLink, NCCL 2.28.9",
		tables: []string{"h200x8-nvlink", "h200x8-nvlink", "h200x8-nvlink", "h200x8-nvlink"},
		phases: []string{"quiet 1", "quiet 2", "quiet 3", "quiet 4"}},
	{name: "socket", title: "4 ranks, 2 nodes over sockets, 4x H200, NCCL 2.28.9",
		tables: []string{"h200x4-socket-2nodes-quiet", "h200x4-socket-2nodes-network-load", "h200x4-socket-2nodes-cpu-load",
			"h200x4-socket-2nodes-quiet"},
		phases: []string{"quiet", "network load", "CPU load", "quiet again"}},
}

type demo struct {
	Options
	tmp    string
	daemon live.Daemon
	view   *view
}

// folderPrefix begins the names of demos' folders.
const folderPrefix = "dynamiccl-demo-"

// Run plays the demo and reports. The error says what went wrong: ranks that disagreed, a phase that lost, a process that
// failed.
func Run(ctx context.Context, o Options) (err error) {
	tmp, err := forced.Folder(os.TempDir(), folderPrefix)
	if err != nil {
		return err
	}
	if o.Keep {
		kept := filepath.Join(filepath.Dir(tmp), strings.Replace(filepath.Base(tmp), folderPrefix, folderPrefix+"kept-", 1)) // nobody's
		if err := os.Rename(tmp, kept); err != nil {
			return err
		}
		tmp = kept
		defer fmt.Fprintf(o.Out, "kept %s\n", tmp)
	} else {
		defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	}
	d := &demo{Options: o, tmp: tmp, view: newView(o.Out, o.Redraw, o.Seconds)}
	dir := filepath.Join(tmp, "run")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	d.daemon = live.Daemon{Build: o.Build, Dir: dir, Log: filepath.Join(tmp, "daemon.log"), Args: []string{
		"--store", filepath.Join(tmp, "store.db"), "--learner", o.Learner, "--seed", strconv.FormatUint(o.Seed, 10)}}
	if o.Policy != "" {
		d.daemon.Args = append(d.daemon.Args, "--policy", o.Policy)
	}
	if o.Budget != "" {
		d.daemon.Args = append(d.daemon.Args, "--explore-budget", o.Budget)
	}
	if err := d.daemon.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.daemon.Stop()) }()
	ended := make(chan error, len(jobs))
	for _, j := range jobs {
		r := &live.Ranks{Build: o.Build, Dir: dir, Name: j.name, Folder: tmp, Rate: rate, Seed: o.Seed,
			Args: []string{"--spawn", "--workload", "phase", "--require-plugin", "--nccl", "2.28.9"}}
		for _, t := range j.tables {
			r.Phases = append(r.Phases, live.Phase{Table: t, Calls: rate * o.Seconds / numPhases})
		}
		if err := r.Start(); err != nil {
			return err
		}
		defer r.Kill() // those that still run when something failed
		go func() { ended <- r.Wait() }()
	}
	if err := d.watch(ctx, ended); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("stopped before the end: nothing is judged (%w)", context.Cause(ctx))
		}
		return err
	}
	return d.report()
}

// watch shows the daemon's view until all ranks are done, and kills the daemon once in the middle.
func (d *demo) watch(ctx context.Context, ended <-chan error) error {
	defer d.view.close()
	client := control.NewClient(d.daemon.Dir)
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	started := time.Now()
	killed := false
	for left := len(jobs); left > 0; {
		select {
		case err := <-ended:
			if err != nil {
				return err
			}
			left--
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
			d.view.now = time.Since(started)
			if !killed && d.view.now > time.Duration(d.Seconds)*time.Second*45/100 {
				killed = true
				if err := d.restart(ctx); err != nil {
					return err
				}
			}
			if err := d.view.refresh(ctx, client); err != nil {
				return err
			}
			if d.view.now > 3*time.Duration(d.Seconds)*time.Second+time.Minute {
				return fmt.Errorf("ranks have not ended after %.0f s: %s", d.view.now.Seconds(), cmp.Or(d.view.trouble, "this machine is too slow or busy for --seconds"))
			}
		}
	}
	if !killed {
		return errors.New("the ranks were done before the daemon was to be killed: give --seconds more")
	}
	return nil
}

// restart is a crash of the daemon and its return.
func (d *demo) restart(ctx context.Context) error {
	if err := d.daemon.Kill(); err != nil {
		return err
	}
	d.view.event("daemon killed with SIGKILL: the ranks go on with the last agreed plan")
	time.Sleep(time.Second)
	if err := d.daemon.Start(ctx); err != nil {
		return err
	}
	d.view.event("daemon started again: it takes over records and store")
	return nil
}
