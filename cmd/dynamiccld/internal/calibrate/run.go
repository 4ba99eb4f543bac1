package calibrate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/forced"
	"dynamiccl/cmd/dynamiccld/internal/machine"
	"dynamiccl/cmd/dynamiccld/internal/workers"
	"dynamiccl/state"
	"dynamiccl/tuner"
	"dynamiccl/tuner/store"
)

// ErrStopped is returned when somebody stopped the calibration; what was settled is in the store.
var ErrStopped = errors.New("stopped")

// leastStart is too little for ranks to start and measure anything.
const leastStart = time.Second

// closing is kept of a shape's time for its ranks to end.
const closing = 500 * time.Millisecond

// mostFailures is how often the ranks of a shape are started again after a choice that they did not survive.
const mostFailures = 3

// runner is one calibration.
type runner struct {
	o        *Options
	store    *store.Store
	folder   string
	open     func(ctx context.Context, at target) (ranks, error)
	began    time.Time
	progress *progress
	result   Result
	keptAt   time.Time
}

// Run measures within the budget and writes what it finds into the store as it goes. The Result holds what was measured
// until then also when there is an error.
func Run(ctx context.Context, o Options) (Result, error) {
	began := o.Now() // finding a locked store counts, too
	if err := o.Check(); err != nil {
		return Result{}, err
	}
	s, err := openStore(o.Store)
	if err != nil {
		return Result{}, err
	}
	folder, err := forced.Scratch()
	if err != nil {
		return Result{}, errors.Join(err, s.Close())
	}
	r := &runner{o: &o, store: s, folder: folder, began: began}
	sessions := 0
	r.open = func(ctx context.Context, at target) (ranks, error) {
		sessions++
		return forced.Open(ctx, forced.Config{Worker: o.Worker, NCCL: o.NCCL, Ranks: at.Ranks, Nodes: at.Nodes, MaxBytes: at.most(&o),
			Registered: at.registered, Calls: workers.Graph, Beat: true, Timeout: o.Timeout, Environ: o.Environ}, filepath.Join(folder, fmt.Sprint(sessions)))
	}
	err = r.run(ctx)
	err = errors.Join(err, s.Close())
	if err == nil || errors.Is(err, ErrStopped) {
		return r.result, errors.Join(err, os.RemoveAll(folder))
	}
	return r.result, errors.Join(err, forced.Keep(folder))
}

// openStore takes the store for the whole calibration: a daemon that starts meanwhile would keep its choices in memory only,
// and says so.
func openStore(path string) (*store.Store, error) {
	s, err := store.Open(path, store.Options{})
	if errors.Is(err, store.ErrLocked) {
		return nil, fmt.Errorf("a daemon, or another calibrate, uses %s, and measuring wants the GPUs idle: let that calibrate, or the programs under `dynamiccld run`, end, "+
			"or stop `dynamiccld serve`, which `dynamiccld status` names, and start it again afterwards. Nothing was measured: %w", path, store.ErrLocked)
	}
	return s, err
}

func (r *runner) run(ctx context.Context) error {
	r.result = Result{Store: r.o.Store, GPUArch: r.o.GPUArch, Learner: r.o.Learner, BudgetSeconds: r.o.Budget.Seconds(), Warnings: []string{}}
	r.progress = newProgress(r.o, r.began)
	defer func() {
		r.progress.end()
		r.result.Seconds = r.o.Now().Sub(r.began).Seconds()
	}()
	targets := r.o.targets()
	for i, at := range targets {
		left := r.began.Add(r.o.Budget).Sub(r.o.Now())
		if left < leastStart {
			r.result.Warnings = append(r.result.Warnings, fmt.Sprintf("%s: not reached: give more time with --budget", at))
			continue
		}
		err := r.target(ctx, at, r.o.Now().Add(left/time.Duration(len(targets)-i)))
		if ctx.Err() != nil {
			return fmt.Errorf("%w: what was settled until then is in %s", ErrStopped, r.o.Store)
		}
		if err != nil && r.o.Buffers == BuffersAll && errors.As(err, new(*unregistered)) {
			why, _, _ := strings.Cut(err.Error(), "\n")
			r.result.Warnings = append(r.result.Warnings, fmt.Sprintf("%s: not calibrated: %s", at, why))
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	}
	return nil
}

// unregistered says why a machine has no registered buffers to measure: the error is not ours.
type unregistered struct{ error }

func (e *unregistered) Unwrap() error { return e.error }

// start starts the ranks of a target.
func (r *runner) start(ctx context.Context, at target) (ranks, error) {
	open, err := r.open(ctx, at)
	switch {
	case err != nil && at.registered && errors.Is(err, workers.ErrRefused):
		return nil, &unregistered{err}
	case err != nil:
		return nil, fmt.Errorf("starting the ranks: %w", err)
	case !at.registered:
		return open, nil
	}
	if err := open.Apart(); err != nil {
		return nil, errors.Join(&unregistered{err}, open.Kill())
	}
	if err := open.Named(); err != nil {
		r.progress.say("%v; NCCL's default and our kernels are measured", err)
	}
	return open, nil
}

// target calibrates one until ends.
func (r *runner) target(ctx context.Context, at target, ends time.Time) (err error) {
	began := r.o.Now()
	r.progress.starting(at)
	t := &tuning{o: r.o, at: at, buckets: buckets(r.o, at), ends: ends.Add(-closing)}
	t.progress = func() { r.progress.point(t) }
	var key tuner.Key
	defer func() {
		if key.NCCLVersion != 0 {
			err = errors.Join(err, r.settle(t, key, true))
			r.result.add(t, key, r.o.Now().Sub(began))
		}
	}()
	for failures := 0; ; failures++ {
		if t.ranks, err = r.start(ctx, at); err != nil {
			return err
		}
		if t.confirms.IsZero() { // of the time that starting has left
			t.confirms = t.ends.Add(-time.Duration(confirmShare * float64(t.ends.Sub(r.o.Now()))))
		}
		view := t.ranks.View()
		key = tuner.Key{Machine: machine.Stored(r.o.Machine, view.Ranks, t.ranks.Topology().Shape.Nodes), GPUArch: r.o.GPUArch, NCCLVersion: machine.NCCLVersion(view.Ranks), Shape: t.ranks.Topology().Shape}
		if key.NCCLVersion == 0 {
			return errors.Join(errors.New("the ranks do not say which NCCL they run, and choices are kept by its version: use another libnccl.so.2 (--nccl-lib)"), t.ranks.Kill())
		}
		t.keep = func() error { return r.keep(t, key) }
		err = t.run(ctx)
		if err == nil {
			return t.ranks.Close(ctx)
		}
		err = errors.Join(err, t.ranks.Kill())
		if errors.Is(err, errNoMemory) && ctx.Err() == nil {
			if !r.o.Now().Before(t.ends) {
				return nil
			}
			r.progress.say("%s: one rank has no memory of NCCL's, in which its default may be faster; the ranks are started again, and it is measured without", t.at)
			continue
		}
		at, fault := new(pointError), new(forced.Fault)
		if ctx.Err() != nil || !errors.As(err, &at) || !errors.As(err, &fault) || failures+1 == mostFailures {
			return err
		}
		why, _, _ := strings.Cut(err.Error(), "\n") // the ranks' last words follow
		why = strings.TrimSuffix(why, "; it said:")
		r.result.Warnings = append(r.result.Warnings, "left out: "+why)
		over := !r.o.Now().Before(t.ends) // ranks that hang are waited for, and starting others takes as long
		leftOut := "left out"
		if at.action != actions.Default {
			leftOut += ", also by daemons that use this store,"
		}
		r.progress.say("%s; %s and %s", why, leftOut, map[bool]string{false: "the ranks are started again", true: "the time is up"}[over])
		if at.action == actions.Default {
			at.bucket.done, at.bucket.err = true, errors.New("NCCL's default fails: "+why)
		} else {
			t.bar(at.bucket, at.action, fault)
			if err := r.refuse(at.bucket, at.action, key); err != nil {
				return err
			}
		}
		if over {
			return nil
		}
	}
}

// keepEvery is the time between two transactions: each waits for the disk.
const keepEvery = time.Second

// keep writes down what is settled.
func (r *runner) keep(t *tuning, key tuner.Key) error {
	if r.o.Now().Sub(r.keptAt) < keepEvery {
		return nil
	}
	return r.settle(t, key, false)
}

// settle writes down what is settled, at the end also what learners would look into further.
func (r *runner) settle(t *tuning, key tuner.Key, end bool) error {
	var batch []tuner.Learned
	var of []*bucket
	for _, b := range t.buckets {
		if l, ok := t.learned(b, key); ok && !b.kept && (b.done || end) {
			l.SinceNs = state.Ns(r.o.Now().UnixNano())
			batch, of = append(batch, l), append(of, b)
		}
	}
	if len(batch) == 0 {
		return nil
	}
	earlier, err := r.stored(key)
	if err != nil {
		return err
	}
	for i, b := range of {
		batch[i].Refused = b.refused(earlier[b.Bucket].Refused)
	}
	if err := r.store.Put(batch); err != nil {
		return err
	}
	r.keptAt = r.o.Now()
	for _, b := range of {
		b.kept = true
	}
	return nil
}

// learned is what the store gets of a bucket; false: nothing is certain.
func (t *tuning) learned(b *bucket, key tuner.Key) (l tuner.Learned, ok bool) {
	if b.index < 0 || t.session == nil || !b.confirmed(t.session.Base(b.index)) {
		return l, false
	}
	l, ok = t.session.Learned(b.index)
	for a := range b.barred {
		delete(l.Evidence, a)
	}
	key.Bucket = b.Bucket
	l.Key = key
	return l, ok
}

// version of NCCL in words.
func version(key tuner.Key) string { return control.FormatNCCLVersion(key.NCCLVersion) }
