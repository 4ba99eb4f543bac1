package plugintest

import (
	"strings"
	"testing"
)

// A call that was captured with NCCL's kernels stays with them: whatever is mistaken must be found.
func TestKindsInGraphsFindPlantedMistakes(t *testing.T) {
	for _, m := range []struct{ file, is, mistake string }{
		{"coming.h", "bool stays = comm->capturedNccls[collective][bucket] && ", "bool stays = false && "},
		{"coming.h", "bool stays = comm->capturedNccls[collective][bucket] && ", "bool stays = "},
		{"coming.h", "&& dyn_is_ours(base) && !comm->forced", "&& !comm->forced"},
		{"coming.h", " && !comm->forced && ", " && "},
		{"coming.h", " && !dyn_everywhere(comm, DYN_RANK_NEW_GRAPHS);", ";"},
		{"coming.h", "!dyn_everywhere(comm, DYN_RANK_NEW_GRAPHS)", "!dyn_anywhere(comm, DYN_RANK_NEW_GRAPHS)"},
		{"tuner.c", "  if (!dyn_is_ours(action)) comm->capturedNccls", "  comm->capturedNccls"},
		{"tuner.c", "DYN_RARELY(comm->places[collective][bucket].marks == 0)", "false"},
	} {
		t.Run(m.is, func(t *testing.T) {
			t.Parallel()
			if said, err := plantedPlugin(t, "test_kernels", m.file, m.is, m.mistake); err == nil || !strings.Contains(said, "test/") {
				t.Errorf("not found: %v\n%s", err, said)
			}
		})
	}
}

// So must be what mistakes calls that go into graphs, and those that go into none, for each other.
func TestDefaultsOfGraphsFindPlantedMistakes(t *testing.T) {
	for _, m := range []struct{ test, is, mistake string }{
		{"test_captured", "comm->inGraph ? DYN_PLAN_DEFAULT_GRAPHS : DYN_PLAN_DEFAULT_CALLS", "DYN_PLAN_DEFAULT_CALLS"},
		{"test_captured", "comm->inGraph ? DYN_PLAN_DEFAULT_GRAPHS : DYN_PLAN_DEFAULT_CALLS", "DYN_PLAN_DEFAULT_GRAPHS"},
		{"test_captured", "comm->inGraph ? DYN_PLAN_DEFAULT_GRAPHS : DYN_PLAN_DEFAULT_CALLS", "DYN_PLAN_DEFAULT_CALLS | DYN_PLAN_DEFAULT_GRAPHS"},
		{"test_captured", "comm->plan.defaults & passes", "false"},
		{"test_kernels", "!(comm->plan.defaults & DYN_PLAN_DEFAULT_GRAPHS) && dyn_is_ours", "dyn_is_ours"},
		{"test_kernels", "!(comm->plan.defaults & DYN_PLAN_DEFAULT_CALLS) && dyn_is_ours", "dyn_is_ours"},
		{"test_kernels", "(captured || called)", "called"},
	} {
		t.Run(m.is+" "+m.mistake, func(t *testing.T) {
			t.Parallel()
			if said, err := plantedPlugin(t, m.test, "coming.h", m.is, m.mistake); err == nil || !strings.Contains(said, "test/") {
				t.Errorf("not found: %v\n%s", err, said)
			}
		})
	}
}
