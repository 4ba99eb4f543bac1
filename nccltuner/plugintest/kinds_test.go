package plugintest

import "testing"

// A call that was captured with NCCL's kernels stays with them, and plans tell calls that go into graphs from those that go into none:
// whatever is mistaken must be found.
func TestKindsInGraphsFindPlantedMistakes(t *testing.T) {
	for _, m := range []struct{ program, file, is, mistake string }{
		{"test_kernels", "coming.h", "bool stays = comm->capturedNccls[collective][bucket] && ", "bool stays = false && "},
		{"test_kernels", "coming.h", "bool stays = comm->capturedNccls[collective][bucket] && ", "bool stays = "},
		{"test_kernels", "coming.h", "&& dyn_is_ours(base) && !comm->forced", "&& !comm->forced"},
		{"test_kernels", "coming.h", " && !comm->forced && ", " && "},
		{"test_kernels", "coming.h", " && !dyn_everywhere(comm, DYN_RANK_NEW_GRAPHS);", ";"},
		{"test_kernels", "coming.h", "!dyn_everywhere(comm, DYN_RANK_NEW_GRAPHS)", "!dyn_anywhere(comm, DYN_RANK_NEW_GRAPHS)"},
		{"test_kernels", "tuner.c", "  if (!dyn_is_ours(action)) comm->capturedNccls", "  comm->capturedNccls"},
		{"test_kernels", "tuner.c", "DYN_RARELY(comm->places[collective][bucket].marks == 0)", "false"},
		{"test_captured", "coming.h", "comm->inGraph ? DYN_PLAN_DEFAULT_GRAPHS : DYN_PLAN_DEFAULT_CALLS", "DYN_PLAN_DEFAULT_CALLS"},
		{"test_captured", "coming.h", "comm->inGraph ? DYN_PLAN_DEFAULT_GRAPHS : DYN_PLAN_DEFAULT_CALLS", "DYN_PLAN_DEFAULT_GRAPHS"},
		{"test_captured", "coming.h", "comm->inGraph ? DYN_PLAN_DEFAULT_GRAPHS : DYN_PLAN_DEFAULT_CALLS", "DYN_PLAN_DEFAULT_CALLS | DYN_PLAN_DEFAULT_GRAPHS"},
		{"test_captured", "coming.h", "comm->plan.defaults & passes", "false"},
		{"test_kernels", "coming.h", "graphs = entry_of(comm, DYN_PLAN_DEFAULT_GRAPHS, collective, bucket)", "graphs = comm->plan.index[collective][bucket]"},
		{"test_kernels", "coming.h", "calls = entry_of(comm, DYN_PLAN_DEFAULT_CALLS, collective, bucket)", "calls = comm->plan.index[collective][bucket]"},
		{"test_kernels", "coming.h", "(graphs != 0 && dyn_is_ours", "(false && dyn_is_ours"},
	} {
		t.Run(m.is+" "+m.mistake, func(t *testing.T) {
			t.Parallel()
			findsPluginMistake(t, m.program, m.file, m.is, m.mistake)
		})
	}
}
