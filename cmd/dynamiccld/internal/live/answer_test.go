package live

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unsafe"

	"dynamiccl/cmd/dynamiccld/internal/workers"
	"dynamiccl/nccltuner"
)

// When a program has its communicator, a plan is there that knows of our kernels: what was measured before is in force from the second
// epoch on, also for those who capture a graph at once. Ranks wait for it for milliseconds, so a busy machine may miss it now and then.
func TestPlanIsThereWithTheCommunicator(t *testing.T) {
	r := newRig(t, "--learner", "coordinate-descent")
	r.start()
	kernels := r.kernelsFile()
	const tries = 6
	there, seen := 0, map[string]bool{}
	for range tries {
		group := r.workers(workers.Spec{Ranks: 2, Nodes: 1, MaxBytes: 1 << 20}, treeTableOf(t, 2), "FAKEGPU_KERNEL_US=9", "DYNAMICCL_KERNELS="+kernels, "DYNAMICCL_SCRATCH_MIB=8")
		if answered(t, r.daemon.Dir, seen) == nccltuner.AnsweredKernels {
			there++
		}
		if err := group.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
	t.Logf("a plan was there with %d of %d communicators", there, tries)
	if there < tries/2 {
		t.Errorf("a plan was there with %d of %d communicators", there, tries)
	}
}

// The same of programs with several GPUs in one process, as nccl-tests are, however they make their communicators.
func TestPlanIsThereInOneProcess(t *testing.T) {
	const tries = 4
	for _, how := range []string{"group", "init-all", "threads"} {
		r := newRig(t, "--learner", "coordinate-descent")
		r.start()
		there, seen := 0, map[string]bool{}
		for range tries {
			p := startOneProcess(r, how, 2, 8, "9", treeTableOf(t, 2))
			p.more()
			if answered(t, r.daemon.Dir, seen) == nccltuner.AnsweredKernels {
				there++
			}
			p.end()
		}
		t.Logf("%s: a plan was there with %d of %d communicators", how, there, tries)
		if there < tries/2 {
			t.Errorf("%s: a plan was there with %d of %d communicators", how, there, tries)
		}
	}
}

// answered is what the record of a communicator that was not seen before says of plans.
func answered(t *testing.T, dir string, seen map[string]bool) uint32 {
	t.Helper()
	records, err := filepath.Glob(filepath.Join(dir, "comm-*.shm"))
	records = slices.DeleteFunc(records, func(name string) bool { return seen[name] })
	if err != nil || len(records) != 1 {
		t.Fatalf("records %q, %v", records, err)
	}
	seen[records[0]] = true
	f, err := os.Open(records[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var word [4]byte
	if _, err := f.ReadAt(word[:], int64(unsafe.Offsetof(nccltuner.ABIRecord{}.Answered))); err != nil {
		t.Fatal(err)
	}
	return binary.NativeEndian.Uint32(word[:])
}
