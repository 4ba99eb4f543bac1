package calibrate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/forced"
	"dynamiccl/cmd/dynamiccld/internal/workers"
)

const mib = 1 << 20

// Where NCCL's default is faster in memory that it registers itself, that is what a choice has to beat, and is said. Elsewhere, and
// for all other choices, nothing changes.
func TestNCCLMemory(t *testing.T) {
	find := func(memory func(string, uint64) (float64, error)) (map[string]BucketResult, string) {
		w := newWorld(t, "h200x4-nvlink-quiet")
		w.memory = memory
		r, _, err := w.calibrate(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		if err := r.Write(&text); err != nil {
			t.Fatal(err)
		}
		all := map[string]BucketResult{}
		for _, b := range r.Shapes[0].Buckets {
			all[fmt.Sprint(b.Collective, " ", b.MinBytes)] = b
		}
		return all, text.String()
	}
	plain, said := find(nil)
	if strings.Contains(said, "ncclMemAlloc") {
		t.Errorf("where nothing is faster there it says\n%s", said)
	}
	beaten := 0
	faster, said := find(func(collective string, bytes uint64) (float64, error) {
		if collective == "AllGather" && bytes >= mib {
			return 0.5, nil
		}
		return 0.98, nil // scatter
	})
	for at, b := range faster {
		was := plain[at]
		if b.Collective != "AllGather" || b.MinBytes < mib {
			if b.Memory != "" || b.DefaultUs != was.DefaultUs {
				t.Errorf("%s: %+v, before %+v", at, b, was)
			}
			continue
		}
		if b.Memory != "nccl" || b.DefaultUs < 0.49*was.DefaultUs || b.DefaultUs > 0.51*was.DefaultUs || b.ChoiceUs > b.DefaultUs*1.001 {
			t.Errorf("%s: %+v, before %+v", at, b, was)
		}
		if was.Choice != "default" && b.Choice == "default" {
			beaten++
		}
	}
	if beaten == 0 || !strings.Contains(said, "*  ") || !strings.Contains(said, "\n  * of NCCL's default in buffers from ncclMemAlloc") {
		t.Errorf("%d choices are not good enough now; it says\n%s", beaten, said)
	}
}

// A size at which NCCL's default hangs there keeps it, and why is said.
func TestHangsInNCCLMemory(t *testing.T) {
	w := newWorld(t, "h200x4-nvlink-quiet")
	w.memory = func(collective string, bytes uint64) (float64, error) {
		if collective == "AllGather" && bytes == mib {
			return 0, forced.NewFault(forced.Hung, "no answer")
		}
		return 1, nil
	}
	r, _, err := w.calibrate(context.Background(), nil)
	if err != nil || len(r.Warnings) != 1 || w.opened != 2 {
		t.Fatalf("%d starts, %q, %v", w.opened, r.Warnings, err)
	}
	for _, b := range r.Shapes[0].Buckets {
		if hangs := b.Collective == "AllGather" && b.MinBytes == mib; b.Stored == hangs || hangs && (b.Choice != "default" || !strings.Contains(b.Why, "NCCL's default fails: AllGather 1 MiB")) {
			t.Errorf("%+v", b)
		}
	}
}

// One rank that has none while the others wait for it costs a start of ranks, and no size.
func TestOneRankWithoutNCCLMemory(t *testing.T) {
	w := newWorld(t, "h200x4-nvlink-quiet")
	w.memory = func(string, uint64) (float64, error) {
		w.broken = forced.NewFault(forced.Failed, "rank 1: no memory: %w", workers.ErrRefused)
		return 0, w.broken
	}
	r, _, err := w.calibrate(context.Background(), nil)
	if err != nil || w.opened != 2 || len(r.Warnings) != 0 {
		t.Fatalf("%d starts, %q, %v", w.opened, r.Warnings, err)
	}
	if i := slices.IndexFunc(r.Shapes[0].Buckets, func(b BucketResult) bool { return !b.Stored }); i >= 0 {
		t.Errorf("%+v", r.Shapes[0].Buckets[i])
	}
}

// Ranks that have no such memory are asked once, and calibrated as ever.
func TestNoNCCLMemory(t *testing.T) {
	w := newWorld(t, "h200x4-nvlink-quiet")
	asked := 0
	w.memory = func(string, uint64) (float64, error) {
		asked++
		return 0, fmt.Errorf("rank 1: no memory: %w", workers.ErrRefused)
	}
	r, _, err := w.calibrate(context.Background(), nil)
	if err != nil || asked != 1 || len(r.Warnings) > 0 {
		t.Fatalf("asked %d times, %q, %v", asked, r.Warnings, err)
	}
	if i := slices.IndexFunc(r.Shapes[0].Buckets, func(b BucketResult) bool { return !b.Stored || b.Memory != "" || b.Choice == "" }); i >= 0 {
		t.Errorf("%+v", r.Shapes[0].Buckets[i])
	}
	if !slices.ContainsFunc(r.Shapes[0].Buckets, func(b BucketResult) bool { return b.Choice != actions.Default.String() }) {
		t.Error("nothing was found")
	}
}
