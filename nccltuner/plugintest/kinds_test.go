package plugintest

import (
	"strings"
	"testing"
)

// A captured call stays with the kind of kernel that its first capture had: whatever is mistaken must be found.
func TestKindsInGraphsFindPlantedMistakes(t *testing.T) {
	for _, m := range []struct{ file, is, mistake string }{
		{"tuner.c", "  if (first == UINT32_MAX || comm->forced || kind_in_graph", "  if (true || kind_in_graph"},
		{"tuner.c", "comm->forced || kind_in_graph", "kind_in_graph"},
		{"tuner.c", "  return dyn_is_ours(first) ? first : 0;\n", "  return first;\n"},
		{"tuner.c", "  return dyn_is_ours(first) ? first : 0;\n", "  return 0;\n"},
		{"tuner.c", "kind_in_graph(first) == kind_in_graph(base)", "first == base"},
		{"tuner.c", "  if (*first == 0) *first = ~action;\n", "  *first = ~action;\n"},
		{"tuner.c", "  if (comm->firstCaptured[collective][bucket] != 0 && dyn_is_ours(~comm->firstCaptured[collective][bucket])) return true;\n", ""},
		{"tuner.c", "captured_action(comm, index == 0 ? 0 : comm->plan.entries[index].base, collective, bucket);", "index == 0 ? 0 : captured_action(comm, comm->plan.entries[index].base, collective, bucket);"},
	} {
		t.Run(m.is, func(t *testing.T) {
			t.Parallel()
			if said, err := plantedPlugin(t, "test_kernels", m.file, m.is, m.mistake); err == nil || !strings.Contains(said, "test/") {
				t.Errorf("not found: %v\n%s", err, said)
			}
		})
	}
}
