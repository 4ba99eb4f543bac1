package calibrate

import (
	"strings"
	"testing"
)

// Over real ranks: where graphs in NCCL's own memory are faster than any choice the default stays, and where there is no such memory
// the choices are those of the ranks' buffers.
func TestLiveNCCLMemory(t *testing.T) {
	for _, c := range []struct{ how, memory string }{{"0.3", "nccl"}, {"refuse", ""}} {
		h := newHost(t, "h200x4-nvlink-quiet", "FAKEGPU_OPTIONS=--nccl 2.28.9", "FAKEGPU_GRAPH_REGISTER="+c.how)
		r, said, code := h.calibrate("--ranks", "4", "--collectives", "AllReduce,AllGather", "--min", "4M", "--max", "4M")
		if code != 0 || len(r.Shapes) != 1 || len(r.Shapes[0].Buckets) != 2 || len(r.Warnings) > 0 {
			t.Fatalf("%s: exit code %d, %+v\n%s", c.how, code, r, said)
		}
		others := 0
		for _, b := range r.Shapes[0].Buckets {
			if !b.Stored || b.Memory != c.memory || c.memory != "" && (b.Choice != "default" || b.Ratio != 1) {
				t.Errorf("%s: %+v", c.how, b)
			}
			if b.Choice != "default" && b.Ratio > 1.03 {
				others++
			}
		}
		if (others == 0) != (c.memory != "") {
			t.Errorf("%s: %d other choices than the default in %+v", c.how, others, r.Shapes[0].Buckets)
		}
		var text strings.Builder
		if err := r.Write(&text); err != nil || strings.Contains(text.String(), "ncclMemAlloc") != (c.memory != "") {
			t.Errorf("%s: %v\n%s", c.how, err, &text)
		}
		h.alone()
	}
}
