package live

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
	"unsafe"

	"dynamiccl/cmd/dynamiccld/internal/workers"
	"dynamiccl/nccltuner"
)

// When a program has its communicator, a plan is there that knows of our kernels: what was measured before is in force from the second
// epoch on, also for those who capture a graph at once. Ranks wait for it for milliseconds, so a busy machine may miss it now and then.
func TestPlanIsThereWithTheCommunicator(t *testing.T) {
	r := newRig(t, "--learner", "coordinate-descent")
	r.start()
	root, err := filepath.Abs(checkout)
	if err != nil {
		t.Fatal(err)
	}
	fake, kernels := filepath.Join(root, ".cache", "fakegpu"), filepath.Join(t.TempDir(), "kernels.fatbin")
	if err := os.WriteFile(kernels, []byte{0x50, 0xed, 0x55, 0xba}, 0o600); err != nil { // all that the stand-in for CUDA looks at
		t.Fatal(err)
	}
	const tries = 6
	there, seen := 0, map[string]bool{}
	for range tries {
		group, err := workers.Start(workers.Spec{Program: filepath.Join(root, "bin", "dynamiccl-worker"), Ranks: 2, Nodes: 1, MaxBytes: 1 << 20, Logs: r.tmp,
			Environ: []string{"LD_LIBRARY_PATH=" + fake, "LD_PRELOAD=" + filepath.Join(r.build.Lib, "libdynamiccl.so") + ":" + filepath.Join(fake, "libnccl.so.2"),
				"FAKEGPU_TABLE=" + treeTableOf(t, 2), "FAKEGPU_KERNEL_US=9", "DYNAMICCL_KERNELS=" + kernels, "DYNAMICCL_SCRATCH_MIB=8",
				"NCCL_TUNER_PLUGIN=" + r.build.Tuner(), "NCCL_PROFILER_PLUGIN=" + r.build.Profiler(), "DYNAMICCL_DIR=" + r.daemon.Dir, "TMPDIR=" + r.tmp}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := group.Init(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
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
