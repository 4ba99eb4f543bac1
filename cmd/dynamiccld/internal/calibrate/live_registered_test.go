package calibrate

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/render"
	"dynamiccl/cmd/dynamiccld/internal/workers"
	"dynamiccl/nccltuner"
	"dynamiccl/state"
)

// newNamedHost has our kernels, which take longer than NCCL's there and cost little to run, and an NCCL of that version.
func newNamedHost(t *testing.T, nccl string) *host {
	h := newHost(t, "h200x2-nvlink-quiet", "DYNAMICCL_NO_KERNELS=", "FAKEGPU_OPTIONS=--nccl "+nccl, "FAKEGPU_KERNEL_US=500", "DYNAMICCL_SCRATCH_MIB=8",
		"NCCL_SYM_NOWIN_ENABLE=1") // as `run` sets it
	if err := os.WriteFile(h.path("kernels.fatbin"), []byte{0x50, 0xed, 0x55, 0xba}, 0o600); err != nil { // all that the stand-in for CUDA looks at
		t.Fatal(err)
	}
	h.environ = append(h.environ, "DYNAMICCL_KERNELS="+h.path("kernels.fatbin"))
	return h
}

// What is found on registered memory is stored as such, and a program whose memory is registered captures it, at sizes that it has
// not called before: one call of the collective, of any size, brings all that is stored for it into the plan.
func TestLiveRegistered(t *testing.T) {
	h := newNamedHost(t, "2.32.3")
	r, said, code := h.calibrate("--ranks", "2", "--buffers", "registered", "--collectives", "AllReduce,AllGather", "--min", "512K", "--max", "1M")
	if code != 0 || len(r.Shapes) != 1 || r.Shapes[0].Buffers != "registered" || !strings.Contains(said, "2 ranks, registered buffers: the ranks start") {
		t.Fatalf("exit code %d, %+v\n%s", code, r, said)
	}
	found := r.Shapes[0].Buckets
	for i, want := range []string{"AllReduceRegistered 524288 Ring/LL", "AllReduceRegistered 1048576 Ring/LL", "AllGatherRegistered 524288 Ring/LL",
		"AllGatherRegistered 1048576 Ring/LL"} { // where NCCL takes symmetric kernels
		if len(found) != 4 {
			t.Fatalf("%+v", found)
		}
		if b := found[i]; !b.Stored || b.Ratio < 1.03 || fmt.Sprintf("%s %d %s", b.Collective, b.MinBytes, b.Choice) != want {
			t.Errorf("%+v, want %s", b, want)
		}
	}
	run := h.path("run")
	defer h.serve(run)()
	group := h.program(run, workers.Spec{Ranks: 2, MaxBytes: 1 << 20, Registered: true})
	defer h.close(group)
	for n, collective := range []string{"AllReduce", "AllGather"} {
		if _, err := group.Call(t.Context(), time.Minute, collective, 1024, 16); err != nil {
			t.Fatal(err)
		}
		plan := h.plan(run, func(_ *nccltuner.RecordView, plan map[state.Bucket]actions.Action) bool { return len(plan) > 2*n })
		for i, b := range found {
			c, _ := actions.ParseCollective(b.Collective)
			bucket, _ := state.BucketOf(c, b.MinBytes)
			if a, planned := plan[bucket]; planned != (i < 2*(n+1)) || planned && a.String() != b.Choice {
				t.Errorf("after a call of %s: %s %d: the plan has %s, the store %s", collective, b.Collective, b.MinBytes, a, b.Choice)
			}
		}
	}
	if _, err := group.Call(t.Context(), time.Minute, "AllReduce", 1024, 16); err != nil { // the plan comes into force
		t.Fatal(err)
	}
	h.graphs(group, found)
	// What nobody calibrated is captured as NCCL's default, and `run` says what measures it.
	h.graph(group, BucketResult{Collective: "ReduceScatterRegistered", MinBytes: 1 << 16})
	var end strings.Builder
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		report, err := control.NewClient(run).Run(t.Context(), liveRun)
		if err != nil {
			t.Fatal(err)
		}
		end.Reset()
		if err := render.Run(&end, report); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(end.String(), "ReduceScatterRegistered") {
			break
		}
	}
	if want := "where nothing was measured: ReduceScatterRegistered 64 KiB; measure first: dynamiccld calibrate --buffers registered (NCCL 2.32.3; --nccl-lib FILE where the loader finds another)\n"; !strings.HasSuffix(end.String(), want) {
		t.Errorf("the run's end says\n%s", &end)
	}
}

// An NCCL that takes no names has our kernels there, beside its default: what is found is stored, and captured by a program behind one call of
// the collective.
func TestLiveRegisteredWithoutNames(t *testing.T) {
	h := newNamedHost(t, "2.28.9")
	h.environ = append(h.environ, "FAKEGPU_KERNEL_US=2")
	r, said, code := h.calibrate("--ranks", "2", "--buffers", "registered", "--collectives", "AllReduce", "--min", "512K", "--max", "1M", "--budget", "4m", "--timeout", "1m")
	if code != 0 || len(r.Shapes) != 1 || len(r.Warnings) != 0 || r.Shapes[0].NCCL != "2.28.9" || len(r.Shapes[0].Buckets) != 2 ||
		!strings.Contains(said, "NCCL 2.28.9 cannot be told by name what to run on registered buffers: take 2.31 or newer for that; NCCL's default and our kernels are measured\n") {
		t.Fatalf("exit code %d, %+v\n%s", code, r, said)
	}
	found := r.Shapes[0].Buckets
	for _, b := range found {
		if !b.Stored || b.Collective != "AllReduceRegistered" || b.Ratio < 1.03 || !strings.HasPrefix(b.Choice, "lsa/") {
			t.Errorf("%+v", b)
		}
	}
	run := h.path("run")
	defer h.serve(run)()
	group := h.program(run, workers.Spec{Ranks: 2, MaxBytes: 1 << 20, Registered: true})
	defer h.close(group)
	if _, err := group.Call(t.Context(), time.Minute, "AllReduce", 1024, 16); err != nil {
		t.Fatal(err)
	}
	plan := h.plan(run, func(_ *nccltuner.RecordView, plan map[state.Bucket]actions.Action) bool { return len(plan) > 1 })
	for _, b := range found {
		bucket, _ := state.BucketOf(actions.AllReduceRegistered, b.MinBytes)
		if a := plan[bucket]; a.String() != b.Choice {
			t.Errorf("%s %d: the plan has %s, the store %s", b.Collective, b.MinBytes, a, b.Choice)
		}
	}
	if _, err := group.Call(t.Context(), time.Minute, "AllReduce", 1024, 16); err != nil { // the plan comes into force
		t.Fatal(err)
	}
	h.graphs(group, found)
}

// Without windows, or our kernels, there is nothing to find on registered buffers, and that is said before anything is measured there.
func TestLiveNothingRegistered(t *testing.T) {
	for _, c := range []struct {
		nccl, more, says string
		args             []string
		code, warnings   int
	}{
		{"2.28.9", "DYNAMICCL_NO_KERNELS=1", "DYNAMICCL_NO_KERNELS=1 leaves them out", []string{"--buffers", "all"}, 0, 1},
		{"2.32.3", "", "has no windows: take 2.27 or newer, or plain buffers", []string{"--buffers", "registered", "--nccl-lib", ".cache/fakegpu/libnccl-2.27.so"}, 1, 0},
		{"2.32.3", "DYNAMICCL_NO_KERNELS=1", "DYNAMICCL_NO_KERNELS=1 leaves them out", []string{"--buffers", "registered"}, 1, 0},
		{"2.32.3", "", "registered buffers on 2 nodes: NCCL's symmetric kernels are those of one NVLink domain", []string{"--buffers", "registered", "--nodes", "1,2"}, 2, 0},
		{"2.32.3", "", "--collectives Broadcast: NCCL has nothing else for it on registered buffers", []string{"--buffers", "registered", "--collectives", "AllReduce,Broadcast"}, 2, 0},
		{"2.32.3", "", "want one of plain, registered, all", []string{"--buffers", "other"}, 2, 0},
	} {
		h := newNamedHost(t, c.nccl)
		h.environ = append(h.environ, c.more)
		if i := slices.Index(c.args, "--nccl-lib"); i >= 0 {
			c.args[i+1] = h.root + "/" + c.args[i+1]
		}
		if !slices.Contains(c.args, "--collectives") {
			c.args = append(c.args, "--collectives", "AllReduce")
		}
		r, said, code := h.calibrate(append(c.args, "--ranks", "2", "--max", "1K")...)
		if code != c.code || len(r.Warnings) != c.warnings || !strings.Contains(said+strings.Join(r.Warnings, " "), c.says) || (code == 0) != (len(r.Shapes) == 1) {
			t.Errorf("%v, NCCL %s: exit code %d, %+v\n%s", c.args, c.nccl, code, r, said)
		}
		h.alone()
	}
}
