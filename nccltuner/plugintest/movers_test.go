package plugintest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Threads that move bytes of NCCL's connections, and how many there are; under the thread sanitizer as well.
func TestMovers(t *testing.T) {
	preload(t, "test_movers")
	cmd := exec.CommandContext(t.Context(), filepath.Join(preloadTests(), "threads", "test_movers"), "moves", "closes", "breaks", "ends", "beside")
	cmd.Env = append(os.Environ(), "TSAN_OPTIONS=die_after_fork=0 atexit_sleep_ms=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}

func TestMoversFindPlantedMistakes(t *testing.T) {
	for _, m := range []struct{ what, is, mistake string }{
		{"moves", "handed_over(&all[fd], state,", "handed_over(&all[fd], (sched_yield(), atomic_load(&all[fd].state)),"}, // done since: its bytes are lost
		{"moves", "if (!atomic_compare_exchange_strong(&job->state, &queued, RUNNING)) {", "if (atomic_load(&job->state) == FREE) {"},
		{"moves", "job->data + job->moved", "job->data"},
		{"moves", "  job->moved = 0;\n", ""},
		{"breaks", "errno = ended ? error : EAGAIN;", "errno = ended ? EPIPE : EAGAIN;"},
		{"ends", "while (atomic_load_explicit(&job->state, memory_order_acquire) == RUNNING) sched_yield();", ";"},
		{"ends", "if (atomic_load_explicit(&job->withdrawn, memory_order_relaxed)) return true;", ""},
		{"ends", "    atomic_store_explicit(&job->state, FREE, memory_order_relaxed);\n", ""}, // the next one on the descriptor has its bytes
		{"beside", "if (atomic_load_explicit(&job->owner, memory_order_relaxed) != (uintptr_t)owner) continue;", ""},
		{"quiet", "return now - *quietNs > HAND_BACK_NS;", "return false;"},
		{"quiet", "if (atomic_load(&mover->asleep)) syscall", "if (0) syscall"},
		{"quiet", "if (!sweep(mover)) syscall", "if (0) syscall"},
		{"late", "now - job->queuedNs > STEAL_NS && ", "0 && "},
		{"high", "if (all != NULL && fd < JOBS) {", "if (all != NULL) {"},
		{"quiet", "  job->ended = false;\n", ""},
		{"forked", "atomic_store(&jobs, NULL);", ";"},
	} {
		t.Run(m.what+" "+m.is, func(t *testing.T) {
			t.Parallel()
			for range 6 { // what threads do at one time is chance: most are found at once
				if _, err := planted(t, "../preload", "test_movers.c", []string{"movers.c", "mover_count.c"}, "movers.c", m.is, m.mistake, m.what); err != nil {
					return
				}
			}
			t.Error("not found")
		})
	}
}
