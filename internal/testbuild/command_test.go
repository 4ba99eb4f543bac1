package testbuild

import (
	"context"
	"testing"
	"time"
)

// A command is over soon after its time, whoever of its children has its output open: one of its process group, and one of another.
func TestCommandEndsWithItsTime(t *testing.T) {
	waitDelay = time.Second
	for _, script := range []string{"sleep 30 & wait", "setsid sleep 30 & wait", "setsid sleep 30 &"} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		began := time.Now()
		_, err := Command(ctx, "sh", "-c", script).CombinedOutput()
		cancel()
		if took := time.Since(began); err == nil || took > 15*time.Second {
			t.Errorf("%s: %v after %v", script, err, took)
		}
	}
}
