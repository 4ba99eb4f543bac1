package plugintest

import (
	"strings"
	"testing"
)

// Whether LL is a device kernel on all ranks, on none or on some: whatever is mistaken must be found.
func TestProcessesFindPlantedMistakes(t *testing.T) {
	for _, m := range []struct{ file, is, mistake string }{
		{"record.c", `  if (nccl_is_on("NCCL_SINGLE_PROC_MEM_REG_ENABLE")) self->flags |= DYN_RANK_SHARES_LL;` + "\n", ""},
		{"tuner.c", "fit && dyn_device_ranks(comm) > 0", "fit && dyn_everywhere(comm, DYN_RANK_DEVICE_LL)"},
		{"tuner.c", "if (dyn_device_ranks(comm) >= 0 && __atomic_load_n", "if (__atomic_load_n"},
		{"tuner.c", "if (tunable && DYN_RARELY(dyn_device_ranks(comm) == DYN_DEVICE_SOME)) without_ll(collective, costs, numAlgo, numProto);", ""},
		{"tuner.c", "  if (DYN_RARELY(dyn_device_ranks(comm) == DYN_DEVICE_SOME)) without_ll(collective, costs, numAlgo, numProto);\n  uint32_t", "  uint32_t"},
		{"tuner.c", " || !(usable & ~DYN_MARKS_LL)) return;", ") return;"},
		{"tuner.c", "(collective != DYN_ALL_REDUCE && collective != DYN_ALL_GATHER && collective != DYN_REDUCE_SCATTER) || ", ""},
		{"processes.c", "if (dyn_everywhere(comm, DYN_RANK_SHARES_LL)) return DYN_DEVICE_ALL;", ""},
		{"processes.c", "sharing < comm->nRanks && ", ""},
		{"processes.c", " && comm->self->ncclVersion >= DYN_READS_NOWIN", ""},
	} {
		t.Run(m.file+" "+m.is, func(t *testing.T) {
			t.Parallel()
			if said, err := plantedPlugin(t, "test_device", m.file, m.is, m.mistake); err == nil || !strings.Contains(said, "test/") {
				t.Errorf("not found: %v\n%s", err, said)
			}
		})
	}
}
