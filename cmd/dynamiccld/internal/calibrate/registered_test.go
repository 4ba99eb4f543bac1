package calibrate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/forced"
	"dynamiccl/cmd/dynamiccld/internal/sweep"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// plain is the same size on other memory, which the tables have.
func plain(b state.Bucket) state.Bucket {
	return state.Bucket{Collective: b.Collective.Plain(), Log2Bytes: b.Log2Bytes}
}

// Of the symmetric kernels the world has these alone, and NCCL takes the first one by itself.
var symmetricCosts = map[actions.Symmetric]float64{actions.SymmetricLL: 1, actions.SymmetricST: 0.8, actions.SymmetricLD: 0.8, actions.SymmetricAGxLL: 1, actions.SymmetricRSxLDAGxST: 0.7}

// costNamed is what a name costs: one of NCCL's rings and trees what it costs on other memory with as many channels as NCCL takes.
func (w *world) costNamed(b state.Bucket, a actions.Action) (ns float64, ok bool) {
	of, has := symmetricCosts[a.Symmetric]
	switch ns, _ = w.table.Default(plain(b)); {
	case a == actions.Default:
		return ns, true
	case a.Path == actions.PathSymmetric:
		return of * ns, has
	}
	return w.cost(plain(b), a)
}

// names are the marks of ranks whom NCCL has refused nothing.
func (w *world) names(b state.Bucket) (marks uint32) {
	for s := actions.SymmetricLL; s < actions.NumSymmetric; s++ {
		if s.Names(b.Collective) {
			marks |= uint32(tuner.MarkOf(actions.Action{Path: actions.PathSymmetric, Symmetric: s}))
		}
	}
	return marks | w.marks(plain(b))&(1<<6-1) // and trees and rings
}

// On registered buffers names are learnt, those that are refused for the price of a call, and stored under the collectives there. Plain
// buffers come first, and half of the time is theirs.
func TestRegistered(t *testing.T) {
	for _, buffers := range Buffers {
		w := newWorld(t, "h200x4-nvlink-quiet")
		r, path, err := w.calibrate(t.Context(), func(o *Options) { o.Buffers, o.Collectives = buffers, []string{"AllReduce", "Broadcast", "AllGather"} })
		if err != nil {
			t.Fatalf("%s: %v", buffers, err)
		}
		by := w.learned(path)
		kinds := map[bool]int{}
		for b, l := range by {
			kinds[b.Collective.Registered()]++
			for a := range l.Evidence {
				if _, has := w.cost(b, a); !has {
					t.Errorf("%s: evidence of %s, which is refused", b, a)
				}
			}
		}
		want := map[string]map[bool]int{sweep.BuffersPlain: {false: 51}, sweep.BuffersRegistered: {true: 34}, BuffersAll: {false: 51, true: 34}}[buffers]
		near := w.near(by, 0.03)
		t.Logf("%s: %d of %d within 3%%, %.1f s", buffers, near, len(by), r.Seconds)
		if kinds[false] != want[false] || kinds[true] != want[true] || near < len(by)*97/100 || r.Seconds > 60 {
			t.Errorf("%s: stored %v, want %v, %d near, %.1f s", buffers, kinds, want, near, r.Seconds)
		}
		if len(r.Warnings) > 0 || len(r.Shapes) != len(want) {
			t.Errorf("%s: %q, %d shapes", buffers, r.Warnings, len(r.Shapes))
		}
		var text strings.Builder
		if err := r.Write(&text); err != nil || strings.Contains(text.String(), "4 ranks, registered buffers: ") != (want[true] > 0) ||
			strings.Contains(text.String(), "Those on registered buffers hold once") != (want[true] > 0) {
			t.Errorf("%s: %v, it says\n%s", buffers, err, &text)
		}
		if last := r.Shapes[len(r.Shapes)-1]; last.Buffers != strings.Replace(buffers, BuffersAll, sweep.BuffersRegistered, 1) ||
			!slices.IsSortedFunc(last.Buckets, func(x, y BucketResult) int { return strings.Compare(order(x), order(y)) }) {
			t.Errorf("%s: %s, %+v", buffers, last.Buffers, last.Buckets)
		}
	}
}

// order sorts results as people read them: AllReduce, AllGather, Broadcast, each by size.
func order(b BucketResult) string {
	first := strings.NewReplacer("AllReduce", "0", "AllGather", "1").Replace(b.Collective)
	return fmt.Sprintf("%s %12d", first, b.MinBytes)
}

// Where nobody tells registered buffers apart there is nothing to learn on them: of all that is the end of it, and of these alone an error.
func TestNothingOnRegistered(t *testing.T) {
	for _, buffers := range []string{sweep.BuffersRegistered, BuffersAll} {
		w := newWorld(t, "h200x4-nvlink-quiet")
		w.same, w.starts = errors.New("there are no kernels"), time.Second
		r, path, err := w.calibrate(t.Context(), func(o *Options) { o.Buffers, o.Collectives, o.Largest = buffers, []string{"AllReduce"}, 64<<10 })
		if buffers == BuffersAll {
			if err != nil || len(w.learned(path)) != 7 || len(r.Warnings) != 1 || r.Warnings[0] != "4 ranks, registered buffers: not calibrated: there are no kernels" {
				t.Errorf("all: %v, %q", err, r.Warnings)
			}
			continue
		}
		if err == nil || err.Error() != "4 ranks, registered buffers: there are no kernels" || w.opened != 1 || len(w.learned(path)) != 0 {
			t.Errorf("%v after %d starts", err, w.opened)
		}
	}
}

// A name that hangs costs one start of ranks, at whatever size it was asked for first.
func TestNameThatHangs(t *testing.T) {
	w := newWorld(t, "h200x4-nvlink-quiet")
	hangs := actions.Action{Path: actions.PathSymmetric, Symmetric: actions.SymmetricTmaST}
	w.faults[hangs] = forced.NewFault(forced.Hung, "no answer")
	r, path, err := w.calibrate(t.Context(), func(o *Options) {
		o.Buffers, o.Collectives, o.Largest = sweep.BuffersRegistered, []string{"AllGather", "AllReduce"}, 64<<10
	})
	if by := w.learned(path); err != nil || len(by) != 14 || w.near(by, 0.03) != 14 || w.opened != 2 || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "with "+hangs.String()) {
		t.Errorf("%v, %d stored, %d near, %d starts, %q", err, len(by), w.near(by, 0.03), w.opened, r.Warnings)
	}
}

func TestTargets(t *testing.T) {
	shapes := []state.Shape{{Ranks: 4, Nodes: 1}, {Ranks: 2, Nodes: 1}, {Ranks: 4, Nodes: 2}}
	for buffers, want := range map[string]string{
		"": "4 ranks; 2 ranks; 4 ranks on 2 nodes", sweep.BuffersRegistered: "4 ranks, registered buffers; 2 ranks, registered buffers",
		BuffersAll: "4 ranks; 2 ranks; 4 ranks on 2 nodes; 4 ranks, registered buffers; 2 ranks, registered buffers",
	} {
		var got []string
		for _, at := range (&Options{Shapes: shapes, Buffers: buffers}).targets() {
			got = append(got, at.String())
		}
		if all := strings.Join(got, "; "); all != want {
			t.Errorf("%s: %s", buffers, all)
		}
	}
}
