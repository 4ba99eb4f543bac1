package calibrate

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/forced"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// What NCCL overrules, and what its ranks do not survive, is left out and leaves no trace in the evidence.
func TestLeftOut(t *testing.T) {
	w := newWorld(t, "h200x4-nvlink-quiet")
	bad, dead := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL, Channels: 24}, actions.Action{}
	bucket := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}
	w.not[bad] = forced.NewFault(forced.Overruled, "rank 1 ran Tree/LL/2")
	for _, a := range tuner.Choices(bucket, 1<<20-1, 0, state.Shape{Ranks: 2, Nodes: 1}, true)[1:] {
		if a.Algorithm == actions.Ring && a.Protocol == actions.Simple && a.Channels == 16 {
			dead = a
			w.faults[a] = forced.NewFault(forced.Hung, "no answer")
		}
	}
	r, path, err := w.calibrate(t.Context(), func(o *Options) { o.Collectives, o.Largest = []string{"AllReduce"}, 64<<10 })
	if err != nil {
		t.Fatal(err)
	}
	by := w.learned(path)
	if len(by) != 7 {
		t.Errorf("%d stored", len(by))
	}
	for b, l := range by {
		if _, known := l.Evidence[bad]; known || l.Action == bad || l.Action == dead {
			t.Errorf("%s: %+v", b, l)
		}
		if _, known := l.Evidence[dead]; known {
			t.Errorf("%s: evidence of what hangs: %+v", b, l)
		}
	}
	if best := w.best(bucket); by[bucket].CostNs > 1.05*best {
		t.Errorf("without its best choice 64 KiB costs %.0f, best %.0f", by[bucket].CostNs, best)
	}
	if w.opened > 1 && (len(r.Warnings) != w.opened-1 || !strings.Contains(r.Warnings[0], "no answer")) {
		t.Errorf("%d starts, %q", w.opened, r.Warnings)
	}
}

// What fails once it is in force is dropped, and neither measured again nor stored, however good it was before.
func TestFailsLater(t *testing.T) {
	bucket := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}
	one := func(o *Options) { o.Collectives, o.Smallest, o.Largest = []string{"AllReduce"}, 64<<10, 64<<10 }
	w := newWorld(t, "h200x4-nvlink-quiet")
	_, path, err := w.calibrate(t.Context(), one)
	best := w.learned(path)[bucket].Action
	if err != nil || best == actions.Default {
		t.Fatalf("%v, %s is best", err, best)
	}
	for _, outcome := range []string{forced.Hung, forced.Wrong} {
		w := newWorld(t, "h200x4-nvlink-quiet")
		w.later = map[actions.Action]error{best: forced.NewFault(outcome, "rank 1: %s", outcome)}
		r, path, err := w.calibrate(t.Context(), one)
		l := w.learned(path)[bucket]
		if _, known := l.Evidence[best]; err != nil || l.Action == best || known || w.tried[best] != 2 || len(r.Warnings) != 1 {
			t.Errorf("%s: %v, stored %s, %s was measured %d times: %q", outcome, err, l.Action, best, w.tried[best], r.Warnings)
		}
		if !slices.Equal(l.Refused, []actions.Action{best}) {
			t.Errorf("%s: %v are refused", outcome, l.Refused)
		}
		if cost, ok := w.cost(bucket, l.Action); !ok || r.Shapes[0].Buckets[0].Choice != l.Action.String() || l.CostNs < 0.99*cost {
			t.Errorf("%s: %s stored with %.0f ns, %+v", outcome, l.Action, l.CostNs, r.Shapes[0].Buckets)
		}
	}
}

// What failed is refused by the store from that moment on, whatever is measured further, and no more once it has run in a later calibration.
func TestRefusedUntilItRuns(t *testing.T) {
	bucket := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}
	path := filepath.Join(t.TempDir(), "store.db")
	calibrate := func(fails actions.Action) tuner.Learned {
		w := newWorld(t, "h200x4-nvlink-quiet")
		if fails != actions.Default {
			w.faults[fails] = forced.NewFault(forced.Hung, "no answer")
		}
		_, _, err := w.calibrate(t.Context(), func(o *Options) {
			o.Store, o.Collectives, o.Smallest, o.Largest = path, []string{"AllReduce"}, 64<<10, 64<<10
		})
		if err != nil {
			t.Fatal(err)
		}
		return w.learned(path)[bucket]
	}
	best := calibrate(actions.Default).Action
	if l := calibrate(best); l.Action == best || !slices.Equal(l.Refused, []actions.Action{best}) {
		t.Errorf("%s failed: %s is stored, %v refused", best, l.Action, l.Refused)
	}
	if l := calibrate(actions.Default); l.Action != best || len(l.Refused) != 0 {
		t.Errorf("%s runs again: %s is stored, %v refused", best, l.Action, l.Refused)
	}
}

// Of what ranks did not tell once, as on a machine that is busy, the point alone is lost.
func TestNotToldOnce(t *testing.T) {
	bucket := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}
	for _, c := range []struct {
		outcome string
		once    bool
	}{{forced.Unseen, true}, {forced.Unseen, false}, {forced.Overruled, true}} {
		var best actions.Action
		for _, all := range []bool{true, false} {
			w := newWorld(t, "h200x4-nvlink-quiet")
			if !all {
				w.not[best], w.once = forced.NewFault(c.outcome, "1 of 4 ranks"), c.once
			}
			_, path, err := w.calibrate(t.Context(), func(o *Options) { o.Collectives, o.Smallest, o.Largest = []string{"AllReduce"}, 64<<10, 64<<10 })
			l := w.learned(path)[bucket]
			if err != nil || l.Action == actions.Default && all {
				t.Fatalf("%v, %s is best", err, l.Action)
			}
			if want := c.outcome == forced.Unseen && c.once; !all && (l.Action == best) != want {
				t.Errorf("%s, once %v: %s is stored, best is %s", c.outcome, c.once, l.Action, best)
			}
			best = l.Action
		}
	}
}

// Ranks that hang until the time is up are not started again: nothing more would be measured.
func TestHangsToTheEnd(t *testing.T) {
	w := newWorld(t, "h200x4-nvlink-quiet")
	hangs := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL, Channels: 24}
	w.later = map[actions.Action]error{hangs: forced.NewFault(forced.Hung, "no answer")}
	r, path, err := w.calibrate(t.Context(), func(o *Options) {
		o.Collectives = []string{"AllReduce"}
		o.Now = func() time.Time {
			if w.tried[hangs] < 2 {
				return w.now
			}
			return w.now.Add(o.Budget)
		}
	})
	if err != nil || w.opened != 1 || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "left out: AllReduce") {
		t.Errorf("%d starts, %q, %v", w.opened, r.Warnings, err)
	}
	for b, l := range w.learned(path) {
		if l.Action == hangs && strings.Contains(r.Warnings[0], "AllReduce "+state.FormatBytes(1<<b.Log2Bytes)+" ") {
			t.Errorf("%s: %+v", b, l)
		}
	}
}
