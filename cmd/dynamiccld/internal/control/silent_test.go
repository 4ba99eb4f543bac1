package control_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/fakebackend"
)

// late is a daemon that answers after a while.
type late struct {
	*fakebackend.Backend
	after time.Duration
	err   error
}

func (l late) Status(ctx context.Context) (control.Status, error) {
	time.Sleep(l.after)
	if l.err != nil {
		return control.Status{}, l.err
	}
	return l.Backend.Status(ctx)
}

// A busy daemon is waited for, and whoever asked is told so once; with one that answers nobody is told anything.
func TestBusyDaemonIsWaitedFor(t *testing.T) {
	for after, want := range map[time.Duration]int{0: 0, 400 * time.Millisecond: 1} {
		dir, _, _ := start(t, late{Backend: fakebackend.Busy(), after: after}, nil)
		var said []string
		c := control.NewClient(dir)
		c.Waiting(func(text string) { said = append(said, text) })
		if after > 0 {
			control.LookEvery(c, 50*time.Millisecond)
		}
		if st, err := c.Status(context.Background()); err != nil || st.PID != 4242 {
			t.Errorf("after %v: %+v, %v", after, st, err)
		}
		text := fmt.Sprintf("daemon %d does not answer on %s; waiting for 10s at most", os.Getpid(), filepath.Join(dir, control.SocketName))
		if len(said) != want || want > 0 && said[0] != text {
			t.Errorf("after %v %q was said, want %d times %q", after, said, want, text)
		}
	}
}

// A loop that has no time within the server's patience is no refusal.
func TestDaemonWithoutTime(t *testing.T) {
	dir, log, _ := start(t, late{Backend: fakebackend.Busy(), err: fmt.Errorf("waiting for the loop: %w", context.DeadlineExceeded)}, nil)
	_, err := control.NewClient(dir).Status(context.Background())
	busy := new(control.Error)
	if !errors.As(err, &busy) || busy.Status != http.StatusServiceUnavailable || !strings.Contains(err.Error(), "the daemon is busy and had no time for this within 5s; try again") {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "waiting for the loop") {
		t.Errorf("log %s", log)
	}
}
