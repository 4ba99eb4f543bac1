package calibrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/cmd/dynamiccld/internal/forced"
	"dynamiccl/cmd/dynamiccld/internal/workers"
	"dynamiccl/nccltuner"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// The arithmetic of 60 s. Sweep pays two epochs of calls for every point, of the point's own size: 32 x 1 ms at 64 MiB.
// Here one plan carries the next choices of 32 buckets, so 32 calls of 1 KiB (a millisecond) serve all of them, and a point
// is two plain calls, which connect and are checked, the capture, 1 ms of warm replays and 4 ms of timed ones: 8 to 10 ms
// with the check, 25 at 64 MiB. 5 collectives x 17 sizes are 85 buckets, and a learner rests after 16 to 20 points
// (recorded tables) or earlier: 1500 points, 15 s. Two shapes, each with 5 s to start CUDA and NCCL, are 40 s.
var effort = forced.Effort{Calls: 20, ReplayUs: 600, WarmUs: 1000, MinReplays: parts, Budget: 4 * time.Millisecond}

// parts is how many values of a point the learner is told: it then sees how far replays scatter, and need not measure the
// point again to know. Two or three would do for learning; guards believe no small gain before six (minForSpread).
const parts = 6

// horizon is how many calls a choice is taken to be worth, which trials cost nobody here: with 60, 97 to 100% of the
// buckets of recorded tables come within 3% of the best, and with serve's 8, 87 to 100%.
const horizon = 60

// plainCalls connect what a choice needs, are checked, and tell what ran. estimateCalls more, once, say how long calls
// take about.
const (
	plainCalls    = 2
	estimateCalls = 4
)

// atOnce is how many sizes are measured in turn: those that matter most are settled before others begin, so that a
// calibration that is stopped, or has little time, leaves something; and others begin with what these have told their
// learners. Invariant: a plan can carry as many.
const atOnce = 32

// confirmShare of a shape's time is kept to measure again what was measured once.
const confirmShare = 0.15

// ranks are what is measured with: a forced.Session, or a test's table.
type ranks interface {
	Warm(ctx context.Context) error
	Settle(ctx context.Context, entries []forced.Entry) (version uint32, err error)
	Ran(ctx context.Context, version uint32, entries []forced.Entry) (map[state.Bucket]error, error)
	Call(ctx context.Context, collective string, bytes uint64, calls int) (us float64, err error)
	Measure(ctx context.Context, collective string, bytes uint64, callUs float64, e forced.Effort) ([]workers.Measured, int, error)
	Allowed(collective string, bytes uint64) (uint32, error)
	Apart() error
	Named() error
	MaxChannels() int
	Topology() state.Topology
	View() *nccltuner.RecordView
	Close(ctx context.Context) error
	Kill() error
}

// tuning is one target.
type tuning struct {
	o        *Options
	at       target
	ranks    ranks
	buckets  []*bucket
	session  *tuner.Session // nil: nothing can be chosen
	noMemory bool           // ranks have none of NCCL's own
	ends     time.Time      // nothing is measured any more
	confirms time.Time      // nothing new is tried any more
	points   int
	keep     func() error // writes down what is settled
	progress func()
}

// errNoKernels says why there is nothing to choose for AllToAll. Where anything else is calibrated it goes without saying.
var errNoKernels = errors.New("the ranks have no kernels of ours, and NCCL asks nobody about it; `make kernels` builds them, DYNAMICCL_NO_KERNELS=1 leaves them out")

// errTime is no error: the time is up.
var errTime = errors.New("the time is up")

// run measures until every learner rests or the time is up.
func (t *tuning) run(ctx context.Context) error {
	err := t.ranks.Warm(ctx)
	if err == nil && t.session == nil {
		err = t.defaults(ctx)
	}
	for left := t.session != nil; err == nil && left; {
		if left, err = t.round(ctx); err == nil {
			err = t.keep()
		}
	}
	if errors.Is(err, errTime) {
		return nil
	}
	return err
}

// defaults measures NCCL's own choice of every bucket once, under no plan, and makes the learners.
func (t *tuning) defaults(ctx context.Context) error {
	var err error
	for _, b := range t.buckets {
		if b.us > 0 || b.done {
			continue // measured before the ranks were started again
		}
		if slices.ContainsFunc(t.buckets, func(other *bucket) bool { return other.us > 0 && other.idle() }) && b.Collective.Plain() == actions.AllToAll {
			b.done, b.err = true, errNoKernels
			continue
		}
		if b.first, err = t.measure(ctx, b, actions.Default); err != nil {
			break
		}
		if b.marks, err = t.ranks.Allowed(b.name, b.bytes); err != nil {
			break
		}
		if err = t.inNCCLMemory(ctx, b); err != nil {
			break
		}
	}
	if err == nil && t.at.registered {
		err = t.askNames(ctx)
	}
	if err != nil && !errors.Is(err, errTime) {
		return err
	}
	guard := agents.DefaultGuardConfig().Budgeted(free)
	guard.RecheckCalls, guard.RecheckLimit = never, never // the default has turns of its own here
	cfg := tuner.SessionConfig{NewLearner: t.o.NewLearner, Guard: guard, Topology: t.ranks.Topology(), Seed: t.o.Seed,
		Horizon: horizon, Steady: true}
	for _, b := range t.buckets {
		if b.us == 0 || b.done { // done: its ranks failed after a first point
			continue
		}
		b.set = tuner.Choices(b.Bucket, tuner.MarkSet(b.marks), t.ranks.MaxChannels(), t.at.Shape, true)
		b.set = slices.DeleteFunc(b.set, func(a actions.Action) bool { return b.barred[a] != nil })
		if len(b.set) < 2 {
			b.done, b.err = true, errors.New("NCCL allows nothing else here")
			if b.idle() {
				b.err = errNoKernels
			}
			continue
		}
		b.index = len(cfg.Buckets)
		cfg.Buckets = append(cfg.Buckets, tuner.SessionBucket{Bucket: b.Bucket, Bytes: b.bytes, Set: b.set})
	}
	if len(cfg.Buckets) == 0 {
		return err
	}
	t.buckets = slices.DeleteFunc(t.buckets, func(b *bucket) bool { return errors.Is(b.err, errNoKernels) })
	var e error
	if t.session, e = tuner.NewSession(cfg); e != nil {
		return e
	}
	for _, b := range t.buckets {
		t.tell(b, actions.Default, b.first)
	}
	return err
}

// Trials cost nobody anything: the guard's budget is more than can be spent, and its schedule of rechecks is ours.
const (
	free  = 1e6
	never = 1 << 30
)

// wish is what one bucket is measured with in a round.
type wish struct {
	*bucket
	action actions.Action
	values []float64
}

// round asks learners, brings the answers into force together and measures them. left: there is more to do.
func (t *tuning) round(ctx context.Context) (left bool, err error) {
	wishes := t.wishes()
	if len(wishes) == 0 {
		return false, nil
	}
	var entries []forced.Entry
	for _, w := range wishes {
		if w.action != actions.Default {
			entries = append(entries, forced.Entry{Bucket: w.Bucket, Action: w.action})
		}
	}
	version, err := t.ranks.Settle(ctx, entries)
	if err != nil {
		return false, err
	}
	measured := 0
	for ; measured < len(wishes); measured++ {
		w := &wishes[measured]
		if w.values, err = t.measure(ctx, w.bucket, w.action); err != nil {
			break
		}
	}
	entries = slices.DeleteFunc(entries, func(e forced.Entry) bool {
		return !slices.ContainsFunc(wishes[:measured], func(w wish) bool { return w.Bucket == e.Bucket })
	})
	not, e := t.ranks.Ran(ctx, version, entries)
	if e != nil {
		return false, errors.Join(err, e)
	}
	for _, w := range wishes[:measured] {
		if why := not[w.Bucket]; why != nil && w.action != actions.Default {
			if !w.untold(w.action, why) {
				t.bar(w.bucket, w.action, why)
			}
			continue
		}
		t.tell(w.bucket, w.action, w.values)
	}
	return true, err
}

// wishes asks the learners of the first buckets that are not settled.
func (t *tuning) wishes() (wishes []wish) {
	for _, b := range t.buckets {
		if b.done || b.index < 0 {
			continue
		}
		if len(wishes) == atOnce {
			break
		}
		if a, ok := t.ask(b); ok {
			wishes = append(wishes, wish{bucket: b, action: a})
		}
	}
	return wishes
}

// ask gives what a bucket is measured with next; false: its learner rests and the choice is confirmed, or it has had its
// share.
func (t *tuning) ask(b *bucket) (actions.Action, bool) {
	a, base := t.session.Action(b.index, t.session.Ask(b.index)), t.session.Base(b.index)
	_, barred := b.barred[a]
	name, untried := b.untried()
	switch {
	case t.session.Trying(b.index) && !barred && len(b.points[a]) < mostOfOne && b.n < mostPoints && !t.confirming():
		if b.n%defaultEach == 0 && len(b.points[actions.Default]) < defaultPoints {
			a = actions.Default
		}
		return a, true
	case untried && b.n < mostPoints && !t.confirming():
		return name, true
	case b.barred[base] == nil && !b.confirmed(base) && b.n < mostPoints+defaultPoints+choicePoints:
		return b.missing(base), true
	}
	b.done = true
	return a, false
}

// confirming says that nothing new is tried any more.
func (t *tuning) confirming() bool { return !t.o.Now().Before(t.confirms) }

// measure measures one point of the choice in force: the parts' values in us.
func (t *tuning) measure(ctx context.Context, b *bucket, a actions.Action) (values []float64, err error) {
	if !t.o.Now().Before(t.ends) {
		return nil, errTime
	}
	defer t.progress()
	callUs := b.us
	_, err = t.ranks.Call(ctx, b.name, b.bytes, plainCalls)
	if err == nil && callUs == 0 { // the calls before have made connections
		callUs, err = t.ranks.Call(ctx, b.name, b.bytes, estimateCalls)
	}
	if err != nil {
		return nil, point(b, a, err)
	}
	e := effort
	if a == actions.Default {
		e.Memory = b.memory
	}
	got, _, err := t.ranks.Measure(ctx, b.name, b.bytes, callUs, e)
	if err != nil {
		return nil, point(b, a, err)
	}
	all := make([][]float64, len(got))
	for i, m := range got {
		all[i] = m.Us
	}
	us, _, _ := forced.Slowest(all)
	b.points[a] = append(b.points[a], us)
	b.n++
	t.points++
	if a == actions.Default {
		b.us = us
	}
	return split(all), nil
}

// split gives the slowest rank's median of each part of the replays.
func split(all [][]float64) (values []float64) {
	n := len(all[0])
	for _, us := range all {
		n = min(n, len(us))
	}
	k := min(parts, n)
	for p := range k {
		most := 0.0
		for _, us := range all {
			most = max(most, forced.Median(us[p*n/k:(p+1)*n/k]))
		}
		values = append(values, most)
	}
	return values
}

func point(b *bucket, a actions.Action, err error) error {
	return &pointError{b, a, fmt.Errorf("%s %s with %s: %w", b.name, state.FormatBytes(b.bytes), a, err)}
}

// pointError says at which point ranks failed.
type pointError struct {
	bucket *bucket
	action actions.Action
	error
}

func (e *pointError) Unwrap() error { return e.error }

func (t *tuning) tell(b *bucket, a actions.Action, us []float64) {
	if b.index < 0 {
		return
	}
	for _, v := range us {
		t.session.Tell(b.index, slices.Index(b.set, a), 0, state.Ns(v*1e3))
	}
}

// hopeless is what the learner is told of a choice that does not run, over the default: it turns to others.
const hopeless = 10

// bar leaves a choice out: NCCL runs something else, or its ranks failed. It may be in force already, whatever it took before: guards
// drop that after as many values as a point has, and not after fewer.
func (t *tuning) bar(b *bucket, a actions.Action, why error) {
	delete(b.points, a)
	b.barred[a] = why
	t.tell(b, a, slices.Repeat([]float64{hopeless * b.us}, parts))
}
