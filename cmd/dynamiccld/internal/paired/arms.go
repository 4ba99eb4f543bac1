package paired

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/config"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/launch"
	"dynamiccl/cmd/dynamiccld/internal/sweep"
	"dynamiccl/cmd/dynamiccld/internal/units"
	"dynamiccl/cmd/dynamiccld/internal/workers"
	"dynamiccl/nccltuner"
)

// How long what is no batch may take.
const (
	initWithin = 3 * time.Minute // CUDA's and NCCL's start on a large machine, twice over
	joinWithin = 10 * time.Second
	loadWithin = 30 * time.Second
	askWithin  = 5 * time.Second // a daemon
)

// arm is a group of ranks and the daemon that they have, if any.
type arm struct {
	Arm
	folder, dir string
	group       *workers.Group
	ready       []workers.Ready
	daemon      *launch.Daemon   // nil: none
	others      []*launch.Daemon // of other hosts than rank 0's
	client      *control.Client
	run         uint64
}

// openArm starts daemon and ranks in a folder of their own.
func openArm(ctx context.Context, o *Options, which Arm, folder string) (*arm, error) {
	a := &arm{Arm: which, folder: folder, dir: filepath.Join(folder, "run")}
	if err := a.open(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("arm %s: %w", a.Name, err), a.kill(context.WithoutCancel(ctx)))
	}
	return a, nil
}

func (a *arm) open(ctx context.Context, o *Options) (err error) {
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return err
	}
	environ := o.Plain
	if a.Kind != ArmPlain {
		environ = o.Tuned(a.dir)
	}
	if a.Arm.daemon() {
		a.run = control.NewRun()
		environ = append(slices.Clone(environ), launch.RunVariable+"="+control.RunID(a.run))
		if a.daemon, err = launch.Need(ctx, launch.Host{Dir: a.dir, Executable: o.Executable, Args: a.serveArgs(o), Environ: o.Plain}); err != nil {
			return err
		}
		if why := a.daemon.Status.StoreState; a.Kind == ArmRun && o.Store != "" && o.Store != config.StoreNone && why != "ok" {
			return fmt.Errorf("--store: %s", why)
		}
		a.client = control.NewClient(a.dir)
	}
	dirs, err := a.openOthers(ctx, o)
	if err != nil {
		return err
	}
	environ = slices.Concat(environ, []string{nccltuner.NewGraphsVariable + "=1"}, a.Environ)
	a.group, err = workers.Start(workers.Spec{Program: o.Worker, Ranks: o.Ranks, Comms: o.Comms, Nodes: o.Nodes, NodeDirs: dirs, CPUs: o.CPUs, NCCL: o.NCCL, MaxBytes: max(4096, slices.Max(o.Sizes)),
		Registered: o.Buffers == sweep.BuffersRegistered, Environ: environ, Logs: a.folder})
	if err != nil {
		return err
	}
	if a.ready, err = a.group.Init(ctx, initWithin); err != nil {
		return err
	}
	if a.daemon == nil {
		return nil
	}
	return a.joined(ctx, o.Comms)
}

// openOthers gives the other nodes daemons and directories of their own, where they are to be hosts: by node, where its ranks meet theirs.
func (a *arm) openOthers(ctx context.Context, o *Options) ([]string, error) {
	if !o.Hosts || a.Kind == ArmPlain {
		return nil, nil
	}
	dirs := []string{a.dir}
	for node := 1; node < o.Nodes; node++ {
		dir := filepath.Join(a.folder, "run-"+strconv.Itoa(node))
		dirs = append(dirs, dir)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		if !a.Arm.daemon() {
			continue
		}
		args := append(a.serveArgs(o), "--store", filepath.Join(a.folder, "store-"+strconv.Itoa(node)+".db")) // the last one counts
		daemon, err := launch.Need(ctx, launch.Host{Dir: dir, Executable: o.Executable, Args: args, Environ: o.Plain})
		if err != nil {
			return nil, err
		}
		a.others = append(a.others, daemon)
	}
	return dirs, nil
}

// serveArgs are the daemon's options. The store is the user's for the one arm that may fill it, else it ends with the run.
func (a *arm) serveArgs(o *Options) []string {
	store := filepath.Join(a.folder, "store.db")
	if a.Kind == ArmRun && o.Store != "" {
		store = o.Store
	}
	args := append([]string{"--store", store, "--listen", ""}, o.Serve...)
	if a.Learner != "" {
		args = append(args, "--learner", a.Learner) // the last one counts
	}
	return args
}

// joined waits until the daemon knows the communicators: an arm that NCCL did not load the plugin for would be plain NCCL
// under another name.
func (a *arm) joined(ctx context.Context, comms int) error {
	for deadline := time.Now().Add(joinWithin); ; {
		st, err := a.client.Status(ctx)
		if err != nil {
			return err
		}
		why, active := "", 0
		for _, c := range st.Comms {
			if c.Active {
				active++
			} else {
				why = c.Why
			}
		}
		switch {
		case active >= comms:
			return nil
		case why != "" && time.Now().After(deadline): // until then it may be that not all have joined
			return fmt.Errorf("nothing can be tuned: %s", why)
		case time.Now().After(deadline):
			return fmt.Errorf("%d of %s joined the daemon within %v: this NCCL did not load the plugin; run again with NCCL_DEBUG=INFO "+
				"NCCL_DEBUG_SUBSYS=TUNING,INIT and look into %s/rank0.log, or ask `dynamiccld doctor`", active, units.Count(comms, "communicator"), joinWithin, a.folder)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// alive is an error once the arm's daemon has ended: what is measured from then on is another arm.
func (a *arm) alive() error {
	if a.daemon == nil || a.daemon.Alive() {
		return nil
	}
	const most = 1000
	text, err := os.ReadFile(filepath.Join(a.dir, nccltuner.DaemonLogName))
	if err != nil {
		text = []byte(err.Error())
	}
	return fmt.Errorf("arm %s: daemon %d has ended; it said last:\n%s", a.Name, a.daemon.Status.PID, strings.TrimSpace(string(text[max(0, len(text)-most):])))
}

// choices are what is in force now, by collective and size; none where nothing is chosen.
func (a *arm) choices(ctx context.Context) []Choice {
	if a.client == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	buckets, err := a.client.Buckets(ctx)
	if err != nil {
		return nil // the end of the phase is no place to fail: the daemon's end is met at the next round
	}
	all := []Choice{}
	for _, b := range buckets {
		all = append(all, Choice{b.Collective, b.MinBytes, b.Choice, b.SpeedUp, b.Calls, len(b.Tried)})
	}
	return all
}

// said asks the daemon what it saw in all.
func (a *arm) said(ctx context.Context) *Daemon {
	if a.daemon == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	d := &Daemon{}
	var err, err2, err3 error
	d.Status, err = a.client.Status(ctx)
	d.Report, err2 = a.daemon.Report(ctx, a.run)
	if d.Status.Links != nil {
		d.Links, err3 = a.client.Links(ctx)
	}
	if err = errors.Join(err, err2, err3); err != nil {
		d.Error = strings.TrimSpace(err.Error())
	}
	return d
}

// close lets ranks and daemon end.
func (a *arm) close(ctx context.Context) error {
	var err error
	if a.group != nil {
		err = a.group.Close(ctx)
	}
	return errors.Join(err, a.end(ctx))
}

// kill ends ranks that may not listen.
func (a *arm) kill(ctx context.Context) error {
	var err error
	if a.group != nil {
		err = a.group.Kill()
	}
	return errors.Join(err, a.end(ctx))
}

// drop ends a daemon that somebody has stopped: it is this arm's alone, its folder goes, and let go on it would make that anew.
func drop(d *launch.Daemon) {
	if pid := d.Status.PID; pid <= 0 || !nccltuner.Stopped(pid) || syscall.Kill(pid, syscall.SIGKILL) != nil {
		return
	}
	for deadline := time.Now().Add(time.Second); d.Alive() && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
}

func (a *arm) end(ctx context.Context) error {
	for _, d := range a.others {
		drop(d)
		d.End(ctx, false) // what they have learned is nothing
	}
	a.others = nil
	if a.daemon == nil {
		return nil
	}
	d := a.daemon
	a.daemon = nil
	drop(d)
	if !d.End(ctx, false) {
		return fmt.Errorf("arm %s: daemon %d takes long to end; what was learned may not be in its store yet", a.Name, d.Status.PID)
	}
	return nil
}
