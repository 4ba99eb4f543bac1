package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/forced"
	"dynamiccl/state"
)

// A sweep gives up when so many points in a row end their ranks: it would go on like that for hours.
const mostFailures = 5

// errStopped is returned when somebody stopped the sweep.
var errStopped = errors.New("stopped")

// bench is where points are measured: a session, or a test's table.
type bench interface {
	Warm(ctx context.Context) error
	// probe runs NCCL's default and gives the marks of the bucket, 0: nothing can be forced.
	probe(ctx context.Context, collective string, bytes uint64) (marks uint32, maxChannels int, err error)
	point(ctx context.Context, collective string, bytes uint64, a actions.Action, p *Point) error
	Worn() bool
	Close(ctx context.Context) error
	Kill() error
}

// runner is one run of a sweep.
type runner struct {
	o        *Options
	journal  *journal
	table    *table
	paths    paths
	bench    bench // nil: none is open
	open     func(ctx context.Context) (bench, error)
	warmed   bool // the clocks of the bench are
	failures int  // in a row, of points that ended their ranks
	progress *progress
	measured int // in this run
	choices  string
}

// Run measures what is not measured yet. The error says what went wrong and how to go on.
func Run(ctx context.Context, o Options) (err error) {
	o.complete()
	if err := o.Check(); err != nil {
		return err
	}
	if o.Out != "" { // before ranks take a minute to start
		if err := pathsOf(o.Out).mayBe(); err != nil {
			return err
		}
	}
	folder, err := forced.Scratch()
	if err != nil {
		return err
	}
	stopLoad, err := StartLoad(ctx, o.Executable, o.Load, o.LoadSize)
	if err != nil {
		return errors.Join(err, os.RemoveAll(folder))
	}
	defer func() { err = errors.Join(err, stopLoad()) }()
	sessions := 0
	open := func(ctx context.Context) (*session, error) {
		sessions++
		return openSession(ctx, &o, filepath.Join(folder, fmt.Sprint(sessions)))
	}
	first, err := open(ctx)
	if ctx.Err() != nil {
		return errors.Join(fmt.Errorf("%w while the ranks were starting; nothing was measured", errStopped), os.RemoveAll(folder))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("starting the ranks: %w", err), forced.Keep(folder))
	}
	if text := ginNote(first.View().Ranks, filepath.Join(folder, "1")); text != "" {
		fmt.Fprintf(o.Progress, "GIN: %s\n", text)
	}
	if o.Buffers == BuffersRegistered {
		if err := first.Named(); err != nil {
			fmt.Fprintf(o.Progress, "%v; NCCL's default and our kernels are measured\n", err)
		}
	}
	if o.Transport == "" {
		o.Transport = cmp.Or(first.Topology().Transport, state.UnknownTransport)
	}
	if o.Transport == state.UnknownTransport {
		fmt.Fprintf(o.Progress, "the ranks cannot tell what connects them, or differ (docs/design.md, decision 32): the table says %s; name it with --transport\n", o.Transport)
	}
	r := &runner{o: &o, bench: first, open: func(ctx context.Context) (bench, error) { return open(ctx) }}
	err = r.run(ctx, Describe(ctx, &o, first.Ready()))
	if err == nil || errors.Is(err, errStopped) || errors.Is(err, errOther) {
		return errors.Join(err, os.RemoveAll(folder))
	}
	return errors.Join(err, forced.Keep(folder))
}

// run measures with the bench that is open.
func (r *runner) run(ctx context.Context, d *Description) (err error) {
	defer func() {
		if r.bench != nil {
			err = errors.Join(err, r.bench.Close(context.WithoutCancel(ctx)))
		}
	}()
	if r.o.Out == "" {
		r.o.Out = tableName(&d.Identity)
	}
	r.paths = pathsOf(r.o.Out)
	if r.journal, err = openJournal(r.paths.journal, r.o.Restart); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.journal.file.Close()) }()
	if r.o.Restart {
		err = d.write(r.paths)
	} else {
		err = claim(r.paths, d, len(r.journal.points))
	}
	if err != nil {
		return errors.Join(err, r.journal.dropEmpty())
	}
	r.table = newTable(r.paths.table, d)
	if _, err := r.table.write(r.journal.points); err != nil {
		return err
	}
	if r.o.Samples != "" {
		if err := startSamples(r.o.Samples, r.o.Restart); err != nil {
			return err
		}
	}
	r.choices = choicesText(r.o)
	r.progress = newProgress(r.o, d)
	err = r.rounds(ctx)
	r.progress.end()
	if _, writing := r.table.write(r.journal.points); writing != nil {
		return errors.Join(err, writing)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w after %d points; the same command goes on from there: %s", errStopped, r.measured, r.paths.table)
	}
	if err != nil {
		return fmt.Errorf("%w\nwhat is measured is in %s; the same command goes on from there", err, r.paths.table)
	}
	return r.report()
}

// choicesText names what is forced in a bucket, to know one that is complete.
func choicesText(o *Options) string {
	return strings.TrimSpace(fmt.Sprint(o.Choices, o.Channels))
}

func (r *runner) rounds(ctx context.Context) error {
	for round := 1; round <= r.o.Rounds; round++ {
		if round > 1 {
			if err := r.end(ctx); err != nil { // every round has communicators of its own
				return err
			}
		}
		for _, collective := range r.o.Collectives {
			for _, bytes := range r.o.Sizes {
				if r.journal.done(round, collective, bytes, r.choices, r.o.Retry) {
					r.progress.skip(collective)
					continue
				}
				if err := r.bucket(ctx, round, collective, bytes); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// end ends the ranks; the next point gets others.
func (r *runner) end(ctx context.Context) error {
	if r.bench == nil {
		return nil
	}
	b := r.bench
	r.bench = nil
	return b.Close(ctx)
}

// ensure gives ranks that work, with warm clocks.
func (r *runner) ensure(ctx context.Context) (err error) {
	if r.bench == nil {
		r.warmed = false
		b, err := r.open(ctx)
		if err != nil {
			return fmt.Errorf("starting the ranks again: %w", err)
		}
		r.bench = b
	}
	if !r.warmed {
		err = r.bench.Warm(ctx)
		r.warmed = err == nil
	}
	return err
}

// bucket measures one collective and size.
func (r *runner) bucket(ctx context.Context, round int, collective string, bytes uint64) error {
	if r.bench != nil && r.bench.Worn() {
		if err := r.end(ctx); err != nil {
			return err
		}
	}
	var force []actions.Action
	if err := r.ensure(ctx); err != nil {
		return err
	}
	marks, maxChannels, err := r.bench.probe(ctx, collective, bytes)
	if err != nil {
		p := Point{Round: round, Collective: collective, Bytes: bytes, Action: actions.Default.String()}
		return r.failed(ctx, &p, err) // nothing of this bucket can be known
	}
	if b, tuned := forced.BucketOf(collective, bytes, r.o.Ranks); tuned && marks != 0 {
		force = choices(b, marks, maxChannels, state.Shape{Ranks: r.o.Ranks, Nodes: r.o.Nodes}, r.o.Choices, r.o.Channels)
	}
	list := order(force)
	r.progress.bucket(round, collective, bytes, len(list))
	nth := map[actions.Action]int{}
	for _, a := range list {
		p := Point{Round: round, Collective: collective, Bytes: bytes, Action: a.String(), Nth: nth[a]}
		nth[a]++
		if r.journal.has(p.key(), r.o.Retry) {
			r.progress.left--
		} else {
			if err := r.point(ctx, a, &p); err != nil {
				return err
			}
			r.progress.point()
		}
		if a == actions.Default && p.Nth == 0 && !r.journal.ok(p.key()) {
			return nil // without NCCL's own time there is nothing to compare with, and tables want it first
		}
	}
	if err := r.journal.add(Point{Round: round, Collective: collective, Bytes: bytes, Outcome: outcomeDone, Choices: r.choices}); err != nil {
		return err
	}
	if round > 1 || r.o.Retry { // rows have changed and not only been added
		_, err = r.table.write(r.journal.points)
	}
	return err
}

// point measures one choice and writes it down.
func (r *runner) point(ctx context.Context, a actions.Action, p *Point) error {
	if err := r.ensure(ctx); err != nil {
		return err
	}
	if err := r.bench.point(ctx, p.Collective, p.Bytes, a, p); err != nil {
		return r.failed(ctx, p, err)
	}
	r.failures = 0
	p.Outcome = OutcomeOK
	again := r.journal.has(p.key(), false)
	if err := r.journal.add(*p); err != nil {
		return err
	}
	r.measured++
	if p.Round == 1 && !again {
		return r.table.add(*p)
	}
	return nil
}

// failed writes down a point that gives no row, and ends ranks that cannot be used any more.
func (r *runner) failed(ctx context.Context, p *Point, err error) error {
	fault := new(forced.Fault)
	if ctx.Err() != nil || !errors.As(err, &fault) || errors.Is(err, forced.ErrSetup) {
		return err
	}
	p.Outcome, p.Reason = fault.Outcome, err.Error()
	p.MedianUs, p.IQRUs, p.RankUs, p.Noise, p.CallUs = 0, 0, nil, nil, nil
	if !r.journal.ok(p.key()) { // ranks may fail before anything new is measured of a size, and what is measured of it holds
		if err := r.journal.add(*p); err != nil {
			return err
		}
		r.measured++
	}
	r.progress.failed(p)
	if !fault.Ends() {
		return nil
	}
	b := r.bench
	r.bench = nil
	if err := b.Kill(); err != nil {
		return err
	}
	if r.failures++; r.failures == mostFailures {
		return fmt.Errorf("%d points in a row ended their ranks; the last: %w", mostFailures, err)
	}
	return nil
}
