package plugintest

import (
	"strings"
	"testing"
)

// A call that was captured with NCCL's kernels stays with them: whatever is mistaken must be found.
func TestKindsInGraphsFindPlantedMistakes(t *testing.T) {
	for _, m := range []struct{ file, is, mistake string }{
		{"tuner.c", "bool stays = comm->capturedNccls[collective][bucket] && ", "bool stays = false && "},
		{"tuner.c", "bool stays = comm->capturedNccls[collective][bucket] && ", "bool stays = "},
		{"tuner.c", "&& dyn_is_ours(base) && !comm->forced", "&& !comm->forced"},
		{"tuner.c", " && !comm->forced && ", " && "},
		{"tuner.c", " && !dyn_everywhere(comm, DYN_RANK_NEW_GRAPHS);", ";"},
		{"tuner.c", "!dyn_everywhere(comm, DYN_RANK_NEW_GRAPHS)", "!dyn_anywhere(comm, DYN_RANK_NEW_GRAPHS)"},
		{"tuner.c", "  if (!dyn_is_ours(action)) comm->capturedNccls", "  comm->capturedNccls"},
	} {
		t.Run(m.is, func(t *testing.T) {
			t.Parallel()
			if said, err := plantedPlugin(t, "test_kernels", m.file, m.is, m.mistake); err == nil || !strings.Contains(said, "test/") {
				t.Errorf("not found: %v\n%s", err, said)
			}
		})
	}
}
