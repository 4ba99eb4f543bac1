package plugintest

import (
	"os"
	"path/filepath"
	"testing"

	"dynamiccl/internal/testbuild"
)

// Threads that move bytes of NCCL's connections, and how many there are; under the thread sanitizer as well.
func TestMovers(t *testing.T) {
	preload(t, "test_movers")
	cmd := testbuild.Command(t.Context(), filepath.Join(preloadTests(), "threads", "test_movers"), "moves", "closes", "breaks", "ends", "beside", "alone", "at_a_time")
	cmd.Env = append(os.Environ(), "TSAN_OPTIONS=die_after_fork=0 atexit_sleep_ms=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}

func TestMoversFindPlantedMistakes(t *testing.T) {
	for _, m := range []struct{ what, is, mistake string }{
		{"moves", "handed_over(job, state,", "handed_over(job, (sched_yield(), atomic_load(&job->state)),"}, // done since: its bytes are lost
		{"moves", "if (!atomic_compare_exchange_strong(&job->state, &queued, RUNNING)) {", "if (atomic_load(&job->state) == FREE) {"},
		{"moves", "job->data + job->moved", "job->data"},
		{"moves", "  job->moved = 0;\n", ""},
		{"moves", "return told(moved, true);", "return (dyn_word)moved;"},
		{"moves", "if (moved > 0 && byOurs)", "if (0)"},
		{"moves", "  return told(moved, false);\n", "  return moved;\n"},
		{"breaks", "errno = ended ? error : EAGAIN;", "errno = ended ? EPIPE : EAGAIN;"},
		{"ends", "while (atomic_load_explicit(&job->state, memory_order_acquire) == RUNNING) sched_yield();", ";"},
		{"ends", "if (atomic_load_explicit(&job->withdrawn, memory_order_relaxed)) return true;", ""},
		{"ends", "    atomic_store_explicit(&job->state, FREE, memory_order_relaxed);\n", ""}, // the next one on the descriptor has its bytes
		{"beside", "if (atomic_load_explicit(&job->owner, memory_order_relaxed) != owner) continue;", ""},
		{"quiet", "return now - *quietNs > HAND_BACK_NS;", "return false;"},
		{"quiet", "if (atomic_load(&mover->asleep)) syscall", "if (0) syscall"},
		{"quiet", "if (!sweep(mover)) syscall", "if (0) syscall"},
		{"late", "now - job->queuedNs > STEAL_NS && ", "0 && "},
		{"high", "if (all == NULL || fd >= JOBS) return told", "if (all == NULL) return told"},
		{"quiet", "  job->ended = false;\n", ""},
		{"alone", "static _Thread_local struct caller", "static struct caller"},
		{"alone", "if (!job->begun) job->whole", "job->whole"},
		{"alone", "beside ? LONE : before - 1", "before - 1"},
		{"alone", "some(job, of, job->moved == job->bytes);", ""},
		{"alone", "    nothing_yet(job, of);\n", ""},
		{"alone", "  else if (moved < 0) nothing_yet(job, &caller);\n", ""},
		{"alone", "job->whole = atomic_fetch_add_explicit(&of->whole, 1, memory_order_relaxed) + 1;", "atomic_fetch_add(&of->whole, 1);"},
		{"alone", "atomic_load_explicit(&caller.beside, memory_order_relaxed) == 0 ||", ""},
		{"at_a_time", "bool beside = atomic_load_explicit(&of->whole, memory_order_relaxed) != job->whole;", "bool beside = false;"},
		{"forked", "atomic_store(&jobs, NULL);", ";"},
	} {
		t.Run(m.what+" "+m.is, func(t *testing.T) {
			t.Parallel()
			run := planted(t, "../preload", []string{"../preload/test/test_movers.c", "../preload/mover_count.c"}, "movers.c", m.is, m.mistake)
			testbuild.Found(t, m.is, 6, func() bool { // what threads do at one time is chance: most are found at once
				_, err := run(m.what)
				return err != nil
			})
		})
	}
}
