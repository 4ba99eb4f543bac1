package sweep

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/forced"
	"dynamiccl/cmd/dynamiccld/internal/workers"
	"dynamiccl/cmd/internal/tracefile"
	"dynamiccl/state"
	"dynamiccl/tuner"
	"dynamiccl/tuner/tunersim"
)

// recorded is the table that stands in for GPUs.
const recorded = "h200x4-socket-4nodes-quiet"

func readTable(t *testing.T, path string) *tunersim.Table {
	t.Helper()
	table, err := tracefile.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// world is a machine whose costs are a recorded table's, and what happens on it.
type world struct {
	t        *testing.T
	table    *tunersim.Table
	faults   map[string]error // by "collective bytes action"; a point that has none is measured
	measured map[string]int   // likewise
	opened   int
	open     int // benches that are not closed
	stopAt   int // points until the context ends; 0: never
	stop     context.CancelFunc
	wornAt   int            // points of a bench; 0: never
	factor   []float64      // of every round, which opens a bench of its own
	scatter  func() float64 // of a point; nil: none
	flat     bool           // everything costs what NCCL's default does
}

func newWorld(t *testing.T) *world {
	return &world{t: t, table: readTable(t, filepath.Join("../../../../tuner/tunersim/testdata/measurements", recorded+".csv")),
		faults: map[string]error{}, measured: map[string]int{}}
}

// fakeBench is one set of ranks of the world.
type fakeBench struct {
	*world
	warmed bool
	factor float64
	points int
}

func (w *world) start(context.Context) (bench, error) {
	b := &fakeBench{world: w, factor: 1}
	if len(w.factor) > w.opened {
		b.factor = w.factor[w.opened]
	}
	w.opened++
	w.open++
	return b, nil
}

func (b *fakeBench) bucket(collective string, bytes uint64) state.Bucket {
	c, err := actions.ParseCollective(collective)
	if err != nil {
		b.t.Fatal(err)
	}
	bucket, _ := state.BucketOf(c, bytes)
	return bucket
}

func (b *fakeBench) Warm(context.Context) error {
	b.warmed = true
	return nil
}

func (b *fakeBench) probe(_ context.Context, collective string, bytes uint64) (marks uint32, maxChannels int, err error) {
	if collective == AllToAll {
		return 0, 0, nil
	}
	for _, a := range b.table.Actions(b.bucket(collective, bytes))[1:] {
		marks |= uint32(tuner.MarkOf(a))
	}
	return marks, 0, b.faults[fmt.Sprint("probe ", collective, " ", bytes)]
}

func (b *fakeBench) point(ctx context.Context, collective string, bytes uint64, a actions.Action, p *Point) error {
	if !b.warmed {
		b.t.Errorf("%s measured with cold clocks", a)
	}
	name := fmt.Sprint(collective, " ", bytes, " ", a)
	b.measured[name]++
	b.points++
	if b.stopAt--; b.stopAt == 0 {
		b.stop()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := b.faults[name]; err != nil {
		return err
	}
	ns, ok := 1000.0, true
	if collective != AllToAll {
		ns, ok = b.table.Cost(b.bucket(collective, bytes), a)
	}
	if !ok {
		return forced.NewFault(OutcomeOverruled, "not in the table")
	}
	if b.flat {
		ns, _ = b.table.Cost(b.bucket(collective, bytes), actions.Default)
	}
	us := ns / 1000 * b.factor
	if b.scatter != nil {
		us *= b.scatter()
	}
	p.MedianUs, p.IQRUs, p.RankUs = forced.Slowest([][]float64{{us, us}, {us, us}})
	p.Ran, p.Replays, p.Calls = a.String(), 2, forced.Thorough.Calls
	return nil
}

func (b *fakeBench) Worn() bool                  { return b.wornAt > 0 && b.points >= b.wornAt }
func (b *fakeBench) Close(context.Context) error { b.open--; return nil }
func (b *fakeBench) Kill() error                 { b.open--; return nil }

// options of a sweep of everything in the recorded table.
func (w *world) options() Options {
	o := Options{Ranks: 4, Nodes: 4, Machine: "4xH200", Transport: "socket", Collectives: []string{"AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce"},
		Calls: workers.Graph, Load: LoadNone, Budget: 40 * time.Millisecond, Rounds: 1, Timeout: time.Second,
		Out: filepath.Join(w.t.TempDir(), "table.csv"), Progress: w.t.Output(), Report: w.t.Output(),
		Now: func() time.Time { return time.Unix(1e9, 0) }}
	o.Sizes, _ = Sizes(1024, 4<<20, 4)
	return o
}

// sweep runs one on the world.
func (w *world) sweep(o Options) error {
	w.t.Helper()
	o.complete()
	if err := o.Check(); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	w.stop = cancel
	first, _ := w.start(ctx)
	r := &runner{o: &o, bench: first, open: w.start}
	ready := make([]workers.Ready, o.Ranks)
	for i := range ready {
		ready[i] = workers.Ready{NCCL: 22809, GPU: "NVIDIA H200", UUID: fmt.Sprint("GPU-", i), DriverVersion: 13000}
	}
	err := r.run(ctx, Describe(ctx, &o, ready))
	if w.open != 0 {
		w.t.Errorf("%d sets of ranks were left", w.open)
	}
	return err
}

// same holds a table against the recorded one: every choice that both learners and the recorded sweep know.
func (w *world) same(path string) {
	w.t.Helper()
	got := readTable(w.t, path)
	if got.Machine != w.table.Machine || got.NCCL != w.table.NCCL || got.Shape != w.table.Shape || got.Condition != w.table.Condition {
		w.t.Errorf("%s: %s %s %v %s", path, got.Machine, got.NCCL, got.Shape, got.Condition)
	}
	rows := 0
	for _, b := range w.table.Buckets() {
		for _, a := range w.table.Actions(b) {
			want, _ := w.table.Cost(b, a)
			if us, ok := got.Cost(b, a); !ok || fmt.Sprintf("%.2f", us/1000) != fmt.Sprintf("%.2f", want/1000) {
				w.t.Errorf("%s %s: %v us, %v; want %v", b, a, us/1000, ok, want/1000)
			}
			rows++
		}
	}
	if rows < 300 {
		w.t.Errorf("only %d rows were compared", rows)
	}
}

var errGone = errors.New("gone")
