package live

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"dynamiccl/cmd/dynamiccld/internal/workers"
	"dynamiccl/nccltuner"
)

// Where one rank has no room for its scratch memory all of them run NCCL's calls, at once and alike, and that rank alone says why.
func TestRoomOfOneRank(t *testing.T) {
	for mib, want := range map[int]uint32{7: nccltuner.MemoryRefused, 8: nccltuner.MemoryBound} {
		r := newRig(t, "--learner", "coordinate-descent")
		r.start()
		program := filepath.Join(r.tmp, "worker") // as a launcher that gives ranks other variables
		script := fmt.Sprintf("#!/bin/sh\n[ \"$2\" != 1 ] || export DYNAMICCL_SCRATCH_TOTAL_MIB=%d\nexec %s \"$@\"\n", mib, filepath.Join(r.standIns(), "..", "..", "bin", "dynamiccl-worker"))
		if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		group := r.workers(workers.Spec{Program: program, Ranks: 2, Nodes: 1, MaxBytes: 1 << 20}, treeTableOf(t, 2), "FAKEGPU_KERNEL_US=1",
			"DYNAMICCL_KERNELS="+r.kernelsFile(), "DYNAMICCL_SCRATCH_MIB=8", "DYNAMICCL_SCRATCH_TOTAL_MIB=64")
		t.Logf("made in %v", time.Since(began))
		called, err := group.Call(t.Context(), time.Minute, "AllReduce", 1<<16, 200)
		if err != nil {
			t.Fatal(err)
		}
		allRight(t, called)
		if states := memoryStates(t, r.daemon.Dir, 2); !slices.Equal(states, []uint32{want, want}) {
			t.Errorf("with %d MiB ranks have states %d, want %d", mib, states, want)
		}
		if err := group.Close(context.Background()); err != nil {
			t.Error(err)
		}
		for rank := range 2 {
			said, err := os.ReadFile(filepath.Join(r.tmp, fmt.Sprintf("rank%d.log", rank)))
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(said), "DYNAMICCL_SCRATCH_TOTAL_MIB (7)"); n != rank*(8-mib) {
				t.Errorf("with %d MiB rank %d says %d times that it has no room: %s", mib, rank, n, said)
			}
		}
	}
}

// memoryStates are those of the ranks of the only communicator that there is.
func memoryStates(t *testing.T, dir string, ranks int) (states []uint32) {
	t.Helper()
	records, err := filepath.Glob(filepath.Join(dir, "comm-*.shm"))
	if err != nil || len(records) != 1 {
		t.Fatalf("records %q, %v", records, err)
	}
	record, err := os.ReadFile(records[0])
	if err != nil {
		t.Fatal(err)
	}
	for i := range uintptr(ranks) {
		at := unsafe.Sizeof(nccltuner.ABIRecord{}) + i*unsafe.Sizeof(nccltuner.ABIRank{}) + unsafe.Offsetof(nccltuner.ABIRank{}.MemoryState)
		states = append(states, binary.NativeEndian.Uint32(record[at:]))
	}
	return states
}
