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

// late is a daemon that answers once whoever asks has been told that it is waited for, and 200 ms more.
type late struct {
	*fakebackend.Backend
	told chan struct{} // nil: at once
	err  error
}

func (l late) Status(ctx context.Context) (control.Status, error) {
	if l.told != nil {
		select {
		case <-l.told:
		case <-time.After(4 * time.Second): // nobody is told: the server's own patience ends at 5 s
		}
		time.Sleep(200 * time.Millisecond)
	}
	if l.err != nil {
		return control.Status{}, l.err
	}
	return l.Backend.Status(ctx)
}

// A busy daemon is waited for, and whoever asked is told so once; with one that answers nobody is told anything.
func TestBusyDaemonIsWaitedFor(t *testing.T) {
	for want, told := range []chan struct{}{nil, make(chan struct{}, 10)} {
		dir, _, _ := start(t, late{Backend: fakebackend.Busy(), told: told}, nil)
		var said []string
		c := control.NewClient(dir)
		c.Waiting(func(text string) {
			said = append(said, text)
			if told != nil {
				told <- struct{}{}
			}
		})
		if told != nil {
			control.LookEvery(c, 50*time.Millisecond)
		}
		if st, err := c.Status(context.Background()); err != nil || st.PID != 4242 {
			t.Errorf("%+v, %v", st, err)
		}
		text := fmt.Sprintf("daemon %d does not answer on %s; waiting for 10s at most", os.Getpid(), filepath.Join(dir, control.SocketName))
		if len(said) != want || want > 0 && said[0] != text {
			t.Errorf("%q was said, want %d times %q", said, want, text)
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
