package plugintest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Threads that move bytes of NCCL's connections, and how many there are; under the thread sanitizer as well.
func TestMovers(t *testing.T) {
	preload(t, "test_movers")
	cmd := exec.CommandContext(t.Context(), filepath.Join(preloadTests(), "threads", "test_movers"), "moves", "closes", "breaks", "stopped")
	cmd.Env = append(os.Environ(), "TSAN_OPTIONS=die_after_fork=0 atexit_sleep_ms=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}

func TestMoversFindPlantedMistakes(t *testing.T) {
	for _, m := range []struct{ what, is, mistake string }{
		{"moves", "handed_over(&all[fd], state,", "handed_over(&all[fd], atomic_load(&all[fd].state),"}, // done since: its bytes are lost
		{"moves", "if (!atomic_compare_exchange_strong(&job->state, &queued, RUNNING)) {", "if (atomic_load(&job->state) == FREE) {"},
		{"moves", "job->data + job->moved", "job->data"},
		{"moves", "  job->moved = 0;\n", ""},
		{"breaks", "errno = ended ? error : EAGAIN;", "errno = ended ? EPIPE : EAGAIN;"},
		{"stopped", "while (atomic_load(&movers[i].inCall)) sched_yield();", ";"},
		{"stopped", "if (atomic_load(&stopped)) {", "if (0) {"},
	} {
		t.Run(m.what+" "+m.is, func(t *testing.T) {
			t.Parallel()
			said, err := planted(t, "../preload", "test_movers.c", []string{"movers.c", "mover_count.c"}, "movers.c", m.is, m.mistake, m.what)
			if err == nil {
				t.Errorf("not found: %s", strings.TrimSpace(said))
			}
		})
	}
}
