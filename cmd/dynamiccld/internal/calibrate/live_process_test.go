package calibrate

import (
	"strings"
	"testing"
	"time"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/workers"
)

// What is found for ranks of one process is chosen in a program of one process, and in none of several: NCCL moves data between them in
// another way.
func TestLiveOneProcess(t *testing.T) {
	h := newHost(t, "h200x4-nvlink-quiet", "NCCL_SYM_NOWIN_ENABLE=0", "FAKEGPU_OPTIONS=--nccl 2.28.9")
	r, said, code := h.calibrate("--one-process", "--ranks", "4", "--min", "16K", "--max", "64K", "--collectives", "AllGather,Broadcast")
	if code != 0 || len(r.Shapes) != 1 || !r.Shapes[0].OneProcess || !strings.Contains(said, "4 ranks in one process: the ranks start") {
		t.Fatalf("exit code %d, %+v\n%s", code, r, said)
	}
	var text strings.Builder
	if err := r.Write(&text); err != nil || !strings.Contains(text.String(), "They are for ranks that are all of one process, and for no others") || r.Shapes[0].Over != "nvlink-direct" {
		t.Errorf("%v, over %q\n%s", err, r.Shapes[0].Over, text.String())
	}
	found := r.Shapes[0].Buckets
	for _, b := range found {
		if b.Choice == actions.Default.String() || !b.Stored {
			t.Errorf("%+v", b)
		}
	}
	run := h.path("run")
	defer h.serve(run)()
	for _, one := range []bool{true, false} {
		group := h.program(run, workers.Spec{Ranks: 4, MaxBytes: 64 << 10, OneProcess: one})
		if _, err := group.Call(t.Context(), 10*time.Second, "AllReduce", 1024, 16); err != nil { // a warm-up step of another size
			t.Fatal(err)
		}
		for _, b := range found {
			want := b.DefaultUs
			if one {
				want = b.ChoiceUs
			}
			us := h.graph(group, b)
			for deadline := time.Now().Add(5 * time.Second); one && us > want*1.01 && time.Now().Before(deadline); { // until the plan is there
				time.Sleep(50 * time.Millisecond)
				us = h.graph(group, b)
			}
			if us < want*0.99 || us > want*1.01 {
				t.Errorf("one process %v, %s %d: the graph takes %.2f us, want %.2f (%s %.2f, default %.2f)", one, b.Collective, b.MinBytes, us, want, b.Choice, b.ChoiceUs, b.DefaultUs)
			}
		}
		h.close(group)
	}
}

func TestOneProcessIsOnOneNode(t *testing.T) {
	o := Options{Shapes: Shapes([]int{4}, []int{1, 2}), Smallest: 8, Largest: 64, LargestNet: 64, Budget: leastBudget, Timeout: time.Second, OneProcess: true}
	if err := o.Check(); err == nil || !strings.Contains(err.Error(), "--one-process: its ranks are on one node, and --nodes asks for 2") {
		t.Error(err)
	}
}
