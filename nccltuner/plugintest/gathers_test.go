package plugintest

import "testing"

// Whether a number of channels is answered about an AllGather, and that all ranks say so alike: whatever is mistaken must be found.
func TestGathersFindPlantedMistakes(t *testing.T) {
	for _, m := range []struct{ program, file, is, mistake string }{
		{"test_device", "record.c", "if (comm->gathers && comm->gathers->inThread) self->flags", "if (comm->gathers) self->flags"},
		{"test_device", "record.c", "  if (comm->gathers && comm->gathers->inThread) self->flags |= DYN_RANK_SEES_GATHERS;\n", ""},
		{"test_device", "record.c", `nccl_is_on("NCCL_ENQUEUE_REARCH_ENABLE")`, "false"},
		{"test_device", "record.c", "if (alone || comm->gathers) self->flags", "if (alone) self->flags"},
		{"test_device", "tuner.c", "fit && dyn_everywhere(comm, DYN_RANK_SEES_GATHERS)", "fit"},
		{"test_device", "tuner.c", "fit && dyn_everywhere(comm, DYN_RANK_SEES_GATHERS)", "false"},
		{"test_device", "tuner.c", "library->depth > 0 || dyn_gathers_grouped(comm->gathers)", "library->depth > 0"},
		{"test_device", "tuner.c", "library->depth > 0 || dyn_gathers_grouped(comm->gathers)", "dyn_gathers_grouped(comm->gathers)"},
		{"test_device", "tuner.c", "return seen && !dyn_gathers_broadcasts(comm->gathers);", "return seen;"},
		{"test_choose", "tuner.c", "  if (comm->ownGathers) return false;\n", ""},
		{"test_choose", "tuner.c", "collective != DYN_ALL_GATHER || is_gather(comm, library)", "is_gather(comm, library)"},
		{"test_choose", "hosts.c", "  comm->seesGathers = false;", " "},
		{"test_choose", "hosts.c", "  comm->ownGathers = false;", "  comm->ownGathers = true;"},
	} {
		t.Run(m.file+" "+m.is, func(t *testing.T) {
			t.Parallel()
			findsPluginMistake(t, m.program, m.file, m.is, m.mistake)
		})
	}
	for _, program := range []string{"test_device", "test_choose"} { // without a mistake they pass
		if said, err := plantedPlugin(t, program, "tuner.c", "#include <string.h>", "#include <string.h>"); err != nil {
			t.Errorf("%s: %v\n%s", program, err, said)
		}
	}
}
