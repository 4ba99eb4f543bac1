package paired

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/forced"
	"dynamiccl/cmd/dynamiccld/internal/sweep"
	"dynamiccl/cmd/dynamiccld/internal/workers"
)

var (
	// ErrWrong is returned when elements of results were wrong.
	ErrWrong = errors.New("wrong results")

	// ErrStopped is returned when somebody stopped the run.
	ErrStopped = errors.New("stopped")
)

// grace is what a batch under way may still take once the run is stopped.
const grace = 3 * time.Second

// connectCalls of every point go before the first phase, in every arm: NCCL connects at the first ones.
const connectCalls = 16

// runner is one comparison.
type runner struct {
	o        *Options
	arms     []*arm
	points   []Point
	guess    []float64 // us of a call, by point
	journal  *journal
	progress *progress
	wrong    map[string]uint64
	summary  []PhaseSummary
}

// Run compares the arms. What was measured before an error or a stop is written all the same.
func Run(ctx context.Context, o Options) error {
	if err := o.Check(); err != nil {
		return err
	}
	j, err := openJournal(o.Out)
	if err != nil {
		return err
	}
	folder, err := forced.Scratch()
	if err != nil {
		return errors.Join(err, j.close())
	}
	r := &runner{o: &o, points: o.points(), journal: j, wrong: map[string]uint64{}, progress: newProgress(&o)}
	err = r.run(ctx, folder)
	r.progress.end()
	err = errors.Join(err, j.close())
	if err == nil || errors.Is(err, ErrStopped) {
		return errors.Join(err, os.RemoveAll(folder))
	}
	return errors.Join(err, forced.Keep(folder))
}

func (r *runner) run(ctx context.Context, folder string) (err error) {
	// A batch that runs when somebody stops the run ends as usual, unless it takes long.
	calls, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(grace, cut) })()
	defer func() { err = errors.Join(err, r.close(calls, err)) }()
	for i, which := range r.o.Arms {
		r.progress.say("starting %d ranks of arm %s", r.o.Ranks, which.Name)
		a, err := openArm(ctx, r.o, which, filepath.Join(folder, strconv.Itoa(i)))
		if ctx.Err() != nil {
			if a != nil {
				r.arms = append(r.arms, a)
			}
			return fmt.Errorf("%w while the ranks were starting; nothing was measured", ErrStopped)
		}
		if err != nil {
			return err
		}
		r.arms = append(r.arms, a)
	}
	head := r.head(ctx)
	if err := r.journal.add(head); err != nil {
		return err
	}
	r.progress.begin(head)
	if err := r.connect(ctx, calls); err != nil {
		return r.ended(ctx, err)
	}
	for i, p := range r.o.Phases {
		err := r.phase(ctx, calls, i, p)
		if err != nil || ctx.Err() != nil {
			return r.ended(ctx, err)
		}
	}
	return r.ended(ctx, nil)
}

// ended says what became of the run, after what was measured.
func (r *runner) ended(ctx context.Context, err error) error {
	r.progress.end()
	if len(r.summary) > 0 {
		err = errors.Join(err, r.report())
	}
	for _, a := range r.arms {
		if n := r.wrong[a.Name]; n > 0 {
			err = errors.Join(err, fmt.Errorf("arm %s: %d elements: %w", a.Name, n, ErrWrong))
		}
	}
	if ctx.Err() != nil {
		err = errors.Join(fmt.Errorf("%w; what was measured until then is above", ErrStopped), err)
	}
	return err
}

// close writes the last line and ends all arms.
func (r *runner) close(ctx context.Context, failed error) error {
	end := End{Kind: kindEnd, Stopped: errors.Is(failed, ErrStopped), Wrong: r.wrong, Daemons: map[string]*Daemon{}}
	if failed != nil {
		end.Error = failed.Error()
	}
	ctx = context.WithoutCancel(ctx)
	for _, a := range r.arms {
		if d := a.said(ctx); d != nil {
			end.Daemons[a.Name] = d
			if why := d.Status.TraceError; why != "" {
				r.progress.say("arm %s: the trace ended early: %s", a.Name, why)
			}
		}
	}
	err := r.journal.add(end)
	for _, a := range r.arms {
		err = errors.Join(err, a.close(ctx))
	}
	return err
}

func (r *runner) head(ctx context.Context) Head {
	o := r.o
	like := sweep.Options{Ranks: o.Ranks, Nodes: o.Nodes, Sizes: o.Sizes, Calls: workers.Stream, Load: sweep.LoadNone, Budget: o.Batch,
		Settings: o.Settings, Program: o.Program, Now: o.Now, Transport: "one node"} // plain NCCL in the first arm: nobody says what connects its ranks
	if o.Nodes > 1 {
		like.Transport = "network"
	}
	h := Head{Kind: kindHead, Machine: sweep.Describe(ctx, &like, r.arms[0].ready), Calls: o.Calls, BatchUs: o.Batch.Microseconds(), Time: o.Time, CPUs: o.CPUs,
		Serve: append([]string{}, o.Serve...), Store: o.Store}
	if o.Comms > 1 {
		h.Comms = o.Comms
	}
	for _, a := range o.Arms {
		h.Arms = append(h.Arms, ArmHead(a))
	}
	for _, p := range o.Phases {
		h.Phases = append(h.Phases, PhaseHead{p.Name(), sweep.HostLoad(p.Load, o.LoadSize), p.For.Seconds()})
	}
	return h
}

// connect makes the first calls of every point in every arm, and learns from the base how long one takes.
func (r *runner) connect(ctx, calls context.Context) error {
	r.guess = make([]float64, len(r.points))
	for _, a := range r.arms {
		for i, p := range r.points {
			if ctx.Err() != nil {
				return nil
			}
			got, err := a.group.Call(calls, r.o.Timeout, p.Collective, p.Bytes, connectCalls)
			if err != nil {
				return fmt.Errorf("arm %s: %s of %d bytes: %w", a.Name, p.Collective, p.Bytes, err)
			}
			for rank, c := range got {
				r.check(a, p, rank, c.Wrong)
				r.guess[i] = max(r.guess[i], c.Us)
			}
		}
	}
	return nil
}

// check notes wrong elements and says so at once: whatever was gained is worth nothing then.
func (r *runner) check(a *arm, p Point, rank int, wrong uint64) {
	if wrong == 0 {
		return
	}
	if r.wrong[a.Name] == 0 {
		r.progress.say("arm %s: rank %d: %s of %d bytes: %d elements of the result are wrong", a.Name, rank, p.Collective, p.Bytes, wrong)
	}
	r.wrong[a.Name] += wrong
}

// phase makes rounds until its time is over and writes down what they gave.
func (r *runner) phase(ctx, calls context.Context, index int, p Phase) (err error) {
	stop, err := sweep.StartLoad(ctx, r.o.Executable, p.Load, r.o.LoadSize)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	load := p.Load
	if load != sweep.LoadCompute && load != sweep.LoadCopy {
		load = sweep.LoadNone
	}
	for _, a := range r.arms {
		if err := a.group.Load(calls, loadWithin, load); err != nil {
			return fmt.Errorf("arm %s: %w", a.Name, err)
		}
	}
	from := r.start(calls)
	all := make([]*series, len(r.points))
	for i, point := range r.points {
		all[i] = &series{Point: point, us: make([][]float64, len(r.arms)), mean: make([][]float64, len(r.arms))}
	}
	r.progress.phase(index, p)
	for round := 0; err == nil && ctx.Err() == nil && (time.Since(from.at) < p.For || round < r.o.LeastRounds); round++ {
		err = r.round(ctx, calls, round, from.at, all)
	}
	return errors.Join(err, r.finish(calls, index, p, from, time.Since(from.at).Seconds(), all))
}

// round makes a batch of every point in every arm. One arm follows another at each point, so that what is compared lies
// milliseconds apart; who is first goes around.
func (r *runner) round(ctx, calls context.Context, round int, began time.Time, all []*series) error {
	us, mean := make([]float64, len(r.arms)), make([]float64, len(r.arms))
	for i, s := range all {
		if ctx.Err() != nil {
			return nil
		}
		n, slowest := r.size(r.guess[i]), 0.0
		for turn := range r.arms {
			which := (round + i + turn) % len(r.arms)
			var err error
			if us[which], mean[which], err = r.batch(calls, r.arms[which], s.Point, n); err != nil {
				return err
			}
			slowest = max(slowest, mean[which])
		}
		r.guess[i] = slowest
		s.at = append(s.at, time.Since(began).Seconds())
		for which := range r.arms {
			s.us[which] = append(s.us[which], us[which])
			s.mean[which] = append(s.mean[which], mean[which])
		}
		r.progress.step()
	}
	for _, a := range r.arms {
		if err := a.alive(); err != nil {
			return err
		}
	}
	return nil
}

// timing is how the calls of a batch are cut into replays.
type timing struct{ calls, replays int }

// replaysOfBatch are so many where there are calls enough: a median of fewer means little.
const replaysOfBatch = 5

// size says how many calls a batch has of each communicator, whose calls take about us. Beside those that count there are a replay to warm up,
// one that is checked, and one call before each.
func (r *runner) size(us float64) timing {
	n, budget := r.o.Calls, float64(r.o.Batch.Microseconds())
	for n > 1 && us*float64(r.o.Comms*cut(n).all()) > budget {
		n--
	}
	return cut(n)
}

func cut(n int) timing {
	calls := max(1, n/replaysOfBatch)
	return timing{calls, n / calls}
}

func (t timing) all() int { return t.calls*(t.replays+2) + t.replays }

// batch gives the median of the replays on the slowest rank, and their mean.
func (r *runner) batch(ctx context.Context, a *arm, p Point, n timing) (us, mean float64, err error) {
	mode := modes[r.o.Time]
	got, err := a.group.Measure(ctx, r.o.Timeout, workers.Ask{Collective: p.Collective, Bytes: p.Bytes, Mode: mode,
		Calls: n.calls, Replays: n.replays, MinReplays: n.replays})
	if err != nil {
		err = fmt.Errorf("arm %s: %s of %d bytes: %w", a.Name, p.Collective, p.Bytes, err)
		if errors.Is(err, workers.ErrHung) && mode != workers.Free && r.o.Comms == 1 {
			err = fmt.Errorf("%w; where NCCL waits for the GPU while it connects, --time %s helps", err, TimeStream)
		}
		return 0, 0, err
	}
	for rank, m := range got {
		r.check(a, p, rank, m.Wrong)
		if len(m.Us) == 0 || slices.Min(m.Us) <= 0 {
			return 0, 0, fmt.Errorf("arm %s: rank %d measured no time for %s of %d bytes", a.Name, rank, p.Collective, p.Bytes)
		}
		us = max(us, forced.Median(m.Us))
		mean = max(mean, sum(m.Us)/float64(len(m.Us)))
	}
	return us, mean, nil
}
