package calibrate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/forced"
	"dynamiccl/cmd/dynamiccld/internal/sweep"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// Where nothing was settled nothing is said of how to use it.
func TestResultWithoutChoices(t *testing.T) {
	var text strings.Builder
	if err := (&Result{Store: "s.db", Shapes: []ShapeResult{{Ranks: 2}}}).Write(&text); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "0 choices are in s.db") || strings.Contains(text.String(), "dynamiccld run") {
		t.Error(text.String())
	}
	text.Reset()
	one := ShapeResult{Ranks: 2, Buckets: []BucketResult{{Collective: "AllReduce", MinBytes: 1024, Choice: "Ring/LL", Stored: true}}}
	if err := (&Result{Store: "s.db", Shapes: []ShapeResult{one}}).Write(&text); err != nil || !strings.Contains(text.String(), "\n1 choice is in s.db") {
		t.Errorf("%v: %s", err, text.String())
	}
}

// What was measured of which shape is said, and what holds between nodes.
func TestResultNamesTheNetwork(t *testing.T) {
	const none, pretended = "Nothing was measured over a network: --nodes 1,2 does so", "Nodes were pretended on this machine. Programs of as many ranks and nodes over real hosts find these choices, too"
	found := []BucketResult{{Collective: "AllReduce", MinBytes: 1024, Choice: "Ring/LL", Stored: true}}
	one, four := ShapeResult{Ranks: 4, Nodes: 1, Over: "nvlink", Machine: "4x X", NCCL: "2.28.9", Buckets: found}, ShapeResult{Ranks: 4, Nodes: 4, Over: "socket", Machine: "4x X", NCCL: "2.28.9", Buckets: found}
	for _, c := range []struct {
		shapes         []ShapeResult
		want, unwanted string
	}{{[]ShapeResult{one}, none, pretended}, {[]ShapeResult{one, four}, pretended, none}} {
		var text strings.Builder
		if err := (&Result{Store: "s.db", Shapes: c.shapes}).Write(&text); err != nil {
			t.Fatal(err)
		}
		if said := text.String(); !strings.Contains(said, "4 ranks: over nvlink, 4x X, NCCL 2.28.9, ") || strings.Contains(said, "4 ranks on 4 nodes: over socket, 4x X, ") != (len(c.shapes) > 1) ||
			!strings.Contains(said, c.want) || strings.Contains(said, c.unwanted) {
			t.Errorf("%d shapes: it says\n%s", len(c.shapes), said)
		}
	}
}

// Everything is settled in the time, and near the best: with no noise, with points that differ, and with some that were
// disturbed.
func TestFinds(t *testing.T) {
	for _, c := range []struct {
		table          string
		between, delay float64 // between points, and the share of those that are delayed by a fifth
		within, share  float64
		sizes          int
		seconds        float64
	}{
		{"h200x4-nvlink-quiet", 0, 0, 0.03, 0.98, 85, 30},
		{"h200x8-nvlink", 0, 0, 0.03, 0.98, 51, 30},
		{"h200x4-socket-4nodes-quiet", 0, 0, 0.03, 0.95, 65, 60},
		{"h200x4-socket-2nodes-quiet", 0, 0, 0.03, 0.9, 39, 60},
		{"h200x4-nvlink-quiet", 0.02, 0, 0.03, 0.95, 85, 40},
		{"h200x4-nvlink-quiet", 0.01, 0.05, 0.05, 0.95, 85, 40},
		{"h200x4-nvlink-quiet", 0.05, 0, 0.05, 0.9, 85, 40},
		{"h200x4-socket-4nodes-quiet", 0.02, 0, 0.05, 0.9, 65, 60},
		{figures + "gpu-sweep-kernels-2026-11-22", 0.02, 0, 0.05, 0.95, 61, 40},
		{figures + "gpu-sweep-kernels-2gpus-2026-11-22", 0.02, 0, 0.05, 0.95, 80, 40},
	} {
		w := newWorld(t, c.table)
		rng := rand.New(rand.NewPCG(1, 1))
		w.factor = func(int) float64 {
			f := math.Exp(c.between * rng.NormFloat64())
			if rng.Float64() < c.delay {
				f *= 1.2
			}
			return f
		}
		// Tables of few collectives cost nothing for the others.
		var measured []string
		for _, name := range Collectives {
			if k, _ := actions.ParseCollective(name); has(w, k) {
				measured = append(measured, name)
			}
		}
		r, path, err := w.calibrate(t.Context(), func(o *Options) { o.Collectives = measured })
		if err != nil {
			t.Fatalf("%s: %v", c.table, err)
		}
		by := w.learned(path)
		near, points := w.near(by, c.within), r.Shapes[0].Points
		t.Logf("%s, %g, %g: %d of %d within %.0f%%, %d measurements in %.1f s", c.table, c.between, c.delay, near, len(by), 100*c.within, points, r.Seconds)
		if len(by) != c.sizes || float64(near) < c.share*float64(c.sizes) {
			t.Errorf("%s: %d of %d stored, %d sizes, %d within %.0f%%", c.table, len(by), c.sizes, len(r.Shapes[0].Buckets), near, 100*c.within)
		}
		if r.Seconds > c.seconds {
			t.Errorf("%s took %.1f s", c.table, r.Seconds)
		}
		for b, l := range by {
			if l.Calls < defaultPoints*parts || l.Evidence[actions.Default].N < defaultPoints*parts || l.Key.Shape != w.table.Shape ||
				l.Action != actions.Default && l.Evidence[l.Action].N < choicePoints*parts || l.CostNs != l.Evidence[l.Action].MeanNs {
				t.Errorf("%s: %+v", b, l)
			}
		}
	}
}

func has(w *world, c actions.Collective) bool {
	for _, b := range w.table.Buckets() {
		if b.Collective == c {
			return true
		}
	}
	return false
}

// A plan carries 63 choices and no more, and the time that is given is kept.
func TestBudget(t *testing.T) {
	for _, c := range []struct {
		budget time.Duration
		least  int // stored
		most   int
	}{{5 * time.Second, 0, 0}, {9 * time.Second, 1, 84}, {time.Minute, 85, 85}} {
		w := newWorld(t, "h200x4-nvlink-quiet")
		r, path, err := w.calibrate(t.Context(), func(o *Options) { o.Budget = c.budget })
		if err != nil {
			t.Fatal(err)
		}
		if by := w.learned(path); len(by) < c.least || len(by) > c.most {
			t.Errorf("budget %v: %d stored", c.budget, len(by))
		}
		if limit := max(c.budget, w.starts+time.Second); r.Seconds > limit.Seconds() {
			t.Errorf("budget %v: %.1f s", c.budget, r.Seconds)
		}
		if w.most > tuner.MaxEntries || c.least == 85 && w.most < atOnce-5 {
			t.Errorf("a plan of %d entries", w.most)
		}
		var text strings.Builder
		if err := r.Write(&text); err != nil {
			t.Fatal(err)
		}
		if unsettled := strings.Contains(text.String(), "were not settled"); unsettled != (c.most < 85) {
			t.Errorf("budget %v: it says\n%s", c.budget, &text)
		}
	}
}

// Shapes share what is left, and one that cannot start any more is named.
func TestShapesShareTheTime(t *testing.T) {
	w := newWorld(t, "h200x4-nvlink-quiet")
	shapes := []state.Shape{w.table.Shape, w.table.Shape, w.table.Shape}
	w.starts = 7 * time.Second
	r, _, err := w.calibrate(t.Context(), func(o *Options) { o.Shapes, o.Budget = shapes, 12*time.Second })
	if err != nil || len(r.Shapes) != 2 || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "4 ranks: not reached") {
		t.Errorf("%v, %d shapes, %q", err, len(r.Shapes), r.Warnings)
	}
}

// Where LL is one device kernel it is measured as one choice, and may win as such.
func TestOneDeviceKernel(t *testing.T) {
	for _, device := range []bool{false, true} {
		w := newWorld(t, "h200x4-nvlink-quiet")
		w.device = device
		_, path, err := w.calibrate(t.Context(), func(o *Options) { o.Collectives, o.Largest = []string{"AllReduce"}, 64<<10 })
		if err != nil {
			t.Fatal(err)
		}
		tried, one := 0, actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL}
		for b, l := range w.learned(path) {
			for a := range l.Evidence {
				if a == one {
					tried++
				} else if device && a.Path == actions.PathCollective && a.Protocol == actions.LL {
					t.Errorf("%s: %s was measured", b, a)
				}
			}
		}
		if (tried > 0) != device {
			t.Errorf("device kernel %v: %s was measured %d times", device, one, tried)
		}
	}
}

// Ranks that die at every start end the calibration, and what was settled before is kept.
func TestRanksThatDie(t *testing.T) {
	w := newWorld(t, "h200x4-nvlink-quiet")
	w.faults[actions.Default] = forced.NewFault(forced.Failed, "unhandled cuda error")
	r, path, err := w.calibrate(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "unhandled cuda error") || w.opened != mostFailures || len(w.learned(path)) != 0 {
		t.Errorf("%v after %d starts", err, w.opened)
	}
	if len(r.Shapes) != 1 || len(r.Warnings) == 0 {
		t.Errorf("%+v", r)
	}
}

// A machine that is not idle is told of; one whose points differ by noise is not.
func TestLoadedMachine(t *testing.T) {
	for _, loud := range []bool{false, true} {
		w := newWorld(t, "h200x4-nvlink-quiet")
		w.factor = func(n int) float64 {
			if loud && n > 200 {
				return 1.3
			}
			return 1 + 0.04*float64(n%3)
		}
		r, _, err := w.calibrate(t.Context(), nil)
		if err != nil || (len(r.Warnings) > 0) != loud || loud && (!strings.Contains(r.Warnings[0], "3") || !strings.Contains(r.Warnings[0], "idle")) {
			t.Errorf("loaded %v: %v, %q", loud, err, r.Warnings)
		}
	}
}

// Stopped, it keeps what is certain.
func TestStopped(t *testing.T) {
	w := newWorld(t, "h200x4-nvlink-quiet")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w.factor = func(n int) float64 {
		if n == 600 {
			cancel()
		}
		return 1
	}
	r, path, err := w.calibrate(ctx, nil)
	if !errors.Is(err, ErrStopped) || !strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
	by := w.learned(path)
	stored := 0
	for _, b := range r.Shapes[0].Buckets {
		if b.Stored {
			stored++
		}
	}
	if len(by) == 0 || len(by) == 85 || stored != len(by) {
		t.Errorf("%d are stored, the result says %d", len(by), stored)
	}
}

func TestBuckets(t *testing.T) {
	o := Options{Collectives: Collectives, Smallest: 8, Largest: 64 << 20, LargestNet: 4 << 20}
	for _, c := range []struct {
		shape state.Shape
		n     int
	}{{state.Shape{Ranks: 4, Nodes: 1}, 135}, {state.Shape{Ranks: 3, Nodes: 1}, 138}, {state.Shape{Ranks: 4, Nodes: 2}, 111}} {
		all := buckets(&o, target{Shape: c.shape})
		seen := map[state.Bucket]bool{}
		for i, b := range all {
			share := uint64(1)
			if forced.Shared(b.name) {
				share = 16 * uint64(c.shape.Ranks)
			}
			if b.bytes%share != 0 || b.bytes < 1<<b.Log2Bytes || b.bytes >= 2<<b.Log2Bytes || forced.ActualBytes(b.name, b.bytes, c.shape.Ranks) != b.bytes {
				t.Errorf("%v: %s of %d bytes", c.shape, b.Bucket, b.bytes)
			}
			if i > 0 && later(b) < later(all[i-1]) {
				t.Errorf("%v: %s comes late", c.shape, b.Bucket)
			}
			seen[b.Bucket] = true
		}
		if len(seen) != c.n || len(all) != c.n || all[0].name != "AllReduce" || all[c.n-1].name == "AllReduce" {
			t.Errorf("%v: %d buckets of %d", c.shape, len(seen), len(all))
		}
	}
}

func TestSplit(t *testing.T) {
	got := split([][]float64{{1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 60}, {0, 9, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 100}})
	for i, want := range []float64{9, 2, 3, 4, 5, 6} {
		if got[i] != want {
			t.Errorf("%v", got)
		}
	}
	if got := split([][]float64{{7, 8}}); len(got) != 2 || got[1] != 8 {
		t.Errorf("two replays: %v", got)
	}
}

func TestShapes(t *testing.T) {
	for _, c := range []struct {
		gpus  int
		nodes []int
		want  string
	}{{2, []int{1}, "[{2 1}]"}, {4, []int{1}, "[{4 1} {2 1}]"}, {8, []int{1, 2, 4}, "[{8 1} {4 1} {8 2} {8 4}]"}, {3, []int{1, 1}, "[{3 1}]"}, {4, []int{2}, "[{4 2}]"}} {
		var got []string
		for _, s := range Shapes(Ranks(c.gpus), c.nodes) {
			got = append(got, fmt.Sprintf("{%d %d}", s.Ranks, s.Nodes))
		}
		if all := fmt.Sprint(got); all != c.want {
			t.Errorf("%d GPUs, nodes %v: %s", c.gpus, c.nodes, all)
		}
	}
}

func TestCheck(t *testing.T) {
	for says, change := range map[string]func(*Options){
		"no ranks":                         func(o *Options) { o.Shapes = nil },
		"2 to 64 ranks":                    func(o *Options) { o.Shapes[0].Ranks = 1 },
		"every node":                       func(o *Options) { o.Shapes[0].Nodes = 3 },
		"smallest first":                   func(o *Options) { o.Largest = 512 },
		"at least 5s":                      func(o *Options) { o.Budget = time.Second },
		"--timeout 0s":                     func(o *Options) { o.Timeout = 0 },
		`--collectives "All"`:              func(o *Options) { o.Collectives = []string{"All"} },
		`--buffers "other"`:                func(o *Options) { o.Buffers = "other" },
		"Broadcast: NCCL has nothing else": func(o *Options) { o.Buffers, o.Collectives = BuffersAll, []string{"Broadcast"} },
		"registered buffers on 2 nodes":    func(o *Options) { o.Buffers, o.Shapes[0].Nodes = BuffersAll, 2 },
		"registered buffers on 4 nodes": func(o *Options) {
			o.Buffers, o.Shapes = sweep.BuffersRegistered, append(o.Shapes, state.Shape{Ranks: 4, Nodes: 4})
		},
	} {
		o := Options{Shapes: []state.Shape{{Ranks: 4, Nodes: 1}}, Collectives: []string{"AllReduce"}, Smallest: 1024, Largest: 4096, LargestNet: 4096,
			Budget: time.Minute, Timeout: time.Second}
		if err := o.Check(); err != nil {
			t.Fatal(err)
		}
		change(&o)
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want %q", err, says)
		}
	}
}
