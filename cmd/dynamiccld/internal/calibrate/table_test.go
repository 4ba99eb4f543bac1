package calibrate

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/forced"
	"dynamiccl/cmd/dynamiccld/internal/workers"
	"dynamiccl/cmd/internal/tracefile"
	"dynamiccl/models"
	"dynamiccl/nccltuner"
	"dynamiccl/state"
	"dynamiccl/tuner"
	"dynamiccl/tuner/store"
	"dynamiccl/tuner/tunersim"
)

// world is a machine whose costs are a recorded table's, with a clock of its own.
type world struct {
	t       *testing.T
	table   *tunersim.Table
	now     time.Time
	starts  time.Duration            // what ranks take to start
	factor  func(n int) float64      // of the n-th point; nil: 1
	faults  map[actions.Action]error // of a measurement
	later   map[actions.Action]error // of the second measurement alone
	not     map[actions.Action]error // that did not run as chosen
	broken  error                    // of every call, until other ranks are started
	once    bool                     // not is of one time alone
	force   map[state.Bucket]actions.Action
	version uint32
	points  int
	tried   map[actions.Action]int
	device  bool // all choices of LL are one
	open    int  // sets of ranks that have not ended
	opened  int
	most    int                                                    // entries of a plan
	memory  func(collective string, bytes uint64) (float64, error) // NCCL's default in its own memory, over that in another; nil: 1
	same    error                                                  // why calls on registered buffers are nothing of their own
}

// figures is where tables of our own kernels are, seen from the other tables.
const figures = "../../../../docs/figures/"

func newWorld(t *testing.T, table string) *world {
	t.Helper()
	read, err := tracefile.Read(filepath.Join("../../../../tuner/tunersim/testdata/measurements", table+".csv"))
	if err != nil {
		t.Fatal(err)
	}
	return &world{t: t, table: read, now: time.Unix(1e9, 0), starts: 5 * time.Second, faults: map[actions.Action]error{}, not: map[actions.Action]error{}, tried: map[actions.Action]int{}}
}

// calibrate runs one on the world.
func (w *world) calibrate(ctx context.Context, change func(*Options)) (Result, string, error) {
	w.t.Helper()
	learner, err := models.New(models.DefaultLearner)
	if err != nil {
		w.t.Fatal(err)
	}
	o := Options{Shapes: []state.Shape{w.table.Shape}, Collectives: Collectives, Smallest: 1 << 10, Largest: 64 << 20, LargestNet: 4 << 20,
		Budget: time.Minute, Timeout: time.Second, NewLearner: learner, Learner: models.DefaultLearner, Seed: 1, Machine: "m", GPUArch: "sm_90",
		Store: filepath.Join(w.t.TempDir(), "s.db"), Progress: io.Discard, Now: func() time.Time { return w.now }}
	if change != nil {
		change(&o)
	}
	if err := o.Check(); err != nil {
		w.t.Fatal(err)
	}
	s, err := openStore(o.Store)
	if err != nil {
		w.t.Fatal(err)
	}
	r := &runner{o: &o, store: s, began: w.now}
	r.open = func(context.Context, target) (ranks, error) {
		w.now = w.now.Add(w.starts)
		w.open++
		w.opened++
		w.broken = nil
		return &tableRanks{w}, nil
	}
	err = r.run(ctx)
	if closing := s.Close(); closing != nil {
		w.t.Error(closing)
	}
	if w.open != 0 {
		w.t.Errorf("%d sets of ranks were left", w.open)
	}
	return r.result, o.Store, err
}

// learned reads what the store has of the world's shape.
func (w *world) learned(path string) map[state.Bucket]tuner.Learned {
	w.t.Helper()
	s, err := store.Open(path, store.Options{ReadOnly: true})
	if err != nil {
		w.t.Fatal(err)
	}
	defer s.Close()
	all, err := s.Load("m", "sm_90", 22809, w.table.Shape)
	if err != nil {
		w.t.Fatal(err)
	}
	by := map[state.Bucket]tuner.Learned{}
	for _, l := range all {
		by[l.Key.Bucket] = l
	}
	return by
}

// near counts the stored choices that cost at most so much more than the table's best.
func (w *world) near(by map[state.Bucket]tuner.Learned, more float64) (n int) {
	w.t.Helper()
	for b, l := range by {
		cost, ok := w.cost(b, l.Action)
		if !ok {
			w.t.Errorf("%s: %s is not in the table", b, l.Action)
		} else if cost <= w.best(b)*(1+more) {
			n++
		}
	}
	return n
}

// cost of an action; one that leaves the channels to NCCL runs the most that the table has, and of our kernels one with more
// CTAs than were measured at the size, where they had nothing to do, is one with fewer.
func (w *world) cost(b state.Bucket, a actions.Action) (ns float64, ok bool) {
	if b.Collective.Registered() {
		return w.costNamed(b, a)
	}
	for fewer := a; a.Path == actions.PathLSA && fewer.Channels > 0; fewer.Channels /= 2 {
		if ns, ok = w.table.Cost(b, fewer); ok {
			return ns, ok
		}
	}
	if a == actions.Default || a.Channels > 0 {
		return w.table.Cost(b, a)
	}
	for _, row := range w.table.Actions(b) {
		if row.Algorithm == a.Algorithm && row.Protocol == a.Protocol && row.Path == a.Path && row.Channels >= a.Channels {
			a.Channels = row.Channels
		}
	}
	return w.table.Cost(b, a)
}

// best is the least cost of what a tuner can choose and measure.
func (w *world) best(b state.Bucket) float64 {
	best, _ := w.cost(b, actions.Default)
	for _, a := range tuner.Choices(b, tuner.MarkSet(w.marks(b)), 0, w.table.Shape, true) {
		if ns, ok := w.cost(b, a); ok {
			best = min(best, ns)
		}
	}
	return best
}

func (w *world) marks(b state.Bucket) (marks uint32) {
	if b.Collective.Registered() {
		return w.names(b)
	}
	for _, a := range w.table.Actions(b)[1:] {
		marks |= uint32(tuner.MarkOf(a))
	}
	if w.device {
		marks |= uint32(tuner.MarkDeviceLL)
	}
	return marks
}

// tableRanks are the world's ranks.
type tableRanks struct{ *world }

func (w *tableRanks) pass(us float64) { w.now = w.now.Add(time.Duration(us * 1e3)) }

func (w *tableRanks) us(collective string, bytes uint64) (actions.Action, float64) {
	c, err := actions.ParseCollective(collective)
	if err != nil {
		w.t.Fatal(err)
	}
	if c == actions.AllToAll && !has(w.world, c) { // of which NCCL has one way
		return actions.Default, 10
	}
	b, _ := state.BucketOf(c, bytes)
	ns, ok := w.cost(b, w.force[b])
	if !ok { // the table's NCCL does not allow it here, and runs its own choice
		ns, _ = w.cost(b, actions.Default)
	}
	return w.force[b], ns / 1e3
}

func (w *tableRanks) Warm(context.Context) error { w.pass(7e5); return nil }

func (w *tableRanks) Settle(ctx context.Context, entries []forced.Entry) (uint32, error) {
	w.pass(1000)
	w.version++
	w.most = max(w.most, len(entries))
	w.force = map[state.Bucket]actions.Action{}
	for _, e := range entries {
		if _, twice := w.force[e.Bucket]; twice || e.Action == actions.Default {
			w.t.Fatalf("entries %v", entries)
		}
		w.force[e.Bucket] = e.Action
	}
	return w.version, ctx.Err()
}

func (w *tableRanks) Ran(_ context.Context, version uint32, entries []forced.Entry) (map[state.Bucket]error, error) {
	if version != w.version {
		w.t.Fatalf("asked about plan %d, in force is %d", version, w.version)
	}
	not := map[state.Bucket]error{}
	for _, e := range entries {
		if _, ok := w.cost(e.Bucket, e.Action); !ok {
			not[e.Bucket] = forced.NewFault(forced.Overruled, "not in the table")
		}
		if err := w.not[e.Action]; err != nil {
			not[e.Bucket] = err
			if w.once {
				delete(w.not, e.Action)
			}
		}
	}
	return not, nil
}

// Calls and measurements take what they take on 4x H200: two round trips, the capture, and the check of the result by the
// host at 10 GB/s.
const (
	roundTripUs = 300
	captureUs   = 1000
	checkBytes  = 10_000 // a microsecond
)

func (w *tableRanks) Call(_ context.Context, collective string, bytes uint64, calls int) (float64, error) {
	a, us := w.us(collective, bytes)
	if w.broken != nil {
		return 0, w.broken
	}
	if c, _ := actions.ParseCollective(collective); c.Registered() && w.faults[a] != nil { // where names are asked for
		return 0, w.faults[a]
	}
	w.pass(roundTripUs + us*float64(calls) + float64(bytes)/checkBytes)
	return us + 20, nil
}

func (w *tableRanks) Measure(ctx context.Context, collective string, bytes uint64, callUs float64, e forced.Effort) ([]workers.Measured, int, error) {
	a, us := w.us(collective, bytes)
	if err := w.faults[a]; err != nil || ctx.Err() != nil {
		return nil, 0, errors.Join(err, ctx.Err())
	}
	if w.tried[a]++; w.tried[a] == 2 && w.later[a] != nil {
		return nil, 0, w.later[a]
	}
	if c, _ := actions.ParseCollective(collective); c.Registered() && a.Path == actions.PathSymmetric && symmetricCosts[a.Symmetric] == 0 {
		w.t.Errorf("%s %d: %s is measured, which NCCL has refused", collective, bytes, a)
	}
	if e.Memory == workers.NCCLMemory {
		if a != actions.Default {
			w.t.Errorf("%s %d: %s is measured in memory of NCCL's", collective, bytes, a)
		}
		if w.memory != nil {
			times, err := w.memory(collective, bytes)
			if err != nil {
				return nil, 0, err
			}
			us *= times
		}
	}
	calls := min(e.Calls, max(1, int(e.ReplayUs/callUs)))
	replays := min(50, max(e.MinReplays, int(float64(e.Budget.Microseconds())/us/float64(calls))))
	w.pass(roundTripUs + captureUs + us*float64(calls*(3+replays)) + e.WarmUs + float64(bytes)/checkBytes)
	if w.factor != nil {
		us *= w.factor(w.points)
	}
	w.points++
	all := make([]workers.Measured, w.table.Shape.Ranks)
	for i := range all {
		all[i].Us = slices.Repeat([]float64{us * (1 - float64(i)/100)}, replays)
	}
	return all, calls, nil
}

func (w *tableRanks) Allowed(collective string, bytes uint64) (uint32, error) {
	c, err := actions.ParseCollective(collective)
	b, _ := state.BucketOf(c, bytes)
	if c == actions.AllToAll && !has(w.world, c) { // about which NCCL asks nobody, and there are no kernels here
		return 0, err
	}
	return w.marks(b), err
}

func (w *tableRanks) Apart() error             { return w.same }
func (w *tableRanks) Named() error             { return w.same }
func (w *tableRanks) MaxChannels() int         { return 0 }
func (w *tableRanks) Topology() state.Topology { return w.table.Topology() }
func (w *tableRanks) View() *nccltuner.RecordView {
	return &nccltuner.RecordView{Ranks: []nccltuner.RankView{{NCCLVersion: 22809}}}
}
func (w *tableRanks) Close(context.Context) error { w.open--; return nil }
func (w *tableRanks) Kill() error                 { w.open--; return nil }
