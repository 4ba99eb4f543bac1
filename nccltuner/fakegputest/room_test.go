package fakegputest

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dynamiccl/internal/testbuild"
)

// room runs nccltuner/preload's test of how much scratch memory a process has: what it said, and how it ended.
func room(t *testing.T, program string, env ...string) (string, error) {
	t.Helper()
	return ranks(t, t.TempDir(), time.Minute, program, append(env, "TEST_ALARM_S=30")...)
}

// The bound holds, is said once in each process that comes to it, and names what to do.
func TestRoom(t *testing.T) {
	for program, env := range map[string]string{
		"test_room":         "LD_PRELOAD=" + filepath.Join(build, "libdynamiccl.so"),
		"threads/test_room": "TSAN_OPTIONS=die_after_fork=0 atexit_sleep_ms=0",
	} {
		said, err := room(t, program, env)
		if err != nil {
			t.Errorf("%s: %v\n%s", program, err, said)
		}
		for what, want := range map[string]int{
			"have 24 MiB of scratch memory on this GPU, and 8 more would be over DYNAMICCL_SCRATCH_TOTAL_MIB (31): no device kernels": 3,
			"--scratch-total-mib": 3 + 1 + 2 + 2 + 2 + 2 + 4 + 2 + 2,
			"no 600 MiB of GPU memory for a communicator's scratch": 2,
		} {
			if n := strings.Count(said, what); n != want {
				t.Errorf("%s: %q is said %d times, want %d:\n%s", program, what, n, want, said)
			}
		}
	}
}

func TestRoomFindsPlantedMistakes(t *testing.T) {
	t.Parallel()
	const preload, host = "../preload", "../../kernels/host"
	for _, m := range []struct{ file, is, mistake string }{
		{"room.c", "has + mib <= most", "has <= most"},
		{"room.c", "has + mib <= most", "mib <= most"},
		{"room.c", "mib > DEFAULT_TOTAL_MIB ? mib : DEFAULT_TOTAL_MIB", "DEFAULT_TOTAL_MIB"}, // found by what is said
		{"room.c", "if (s->context == context && s->contextId != id)", "if (false)"},
		{"room.c", "if (s->context == context) mib +=", "mib +="},
		{"room.c", "is_free(s) && s->context == context && s->contextId == id &&", "is_free(s) && s->context == context &&"},
		{"room.c", "if (s != NULL) s->spare = false;", ""},
		{"room.c", "s->spare = true;", "s->spare = atomic_load(&s->graphs) == 0;"},
		{"room.c", "return s->spare && atomic_load(&s->graphs) == 0;", "return s->spare;"},
		{"graphs.c", "atomic_fetch_sub((atomic_uint *)graphs, 1)", "(void)graphs"},
		{"graphs.c", "  atomic_fetch_add(&lsa->scratch->graphs, 1);\n", ""},
		{"launch.c", " && is_done(lsa, LANE_GRAPHS)", ""},
		{"launch.c", " && lsa->numCaptures == 0", ""},
		{"room.c", "  all = NULL;\n", ""},
		{"memory.c", "  dyn_room_give(s);\n  free(s);\n", ""},
		{"memory.c", "  dyn_room_keep(s);\n", ""},
		{"memory.c", "if (ends) close_mapped(s);", "close_mapped(s);"},
		{"memory.c", "lsa->scratch = dyn_room_spare(context, contextId, bytes);", ""},
	} {
		t.Run(m.file+" "+m.is+" "+m.mistake, func(t *testing.T) {
			t.Parallel()
			library := testbuild.MistakenPreload(t, build, t.TempDir(), preload, host, m.file, m.is, m.mistake)
			said, err := room(t, "test_room", "LD_PRELOAD="+library)
			if err == nil && strings.Count(said, "no 600 MiB") == 2 {
				t.Errorf("not found: %s", said)
			}
		})
	}
}
