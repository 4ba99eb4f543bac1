package forced

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/workers"
	"dynamiccl/state"
)

// Who stops while ranks are asked what ran has no answer, and not that they ran something else: choices in force would be dropped for it.
func TestStoppedWhileAsking(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	s := &Session{o: Config{Ranks: 2}}
	entries := []Entry{{Bucket: state.Bucket{Collective: actions.AllReduce, Log2Bytes: 10}, Action: actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring}}}
	if not, err := s.Ran(ctx, 1, entries); !errors.Is(err, context.Canceled) || len(not) > 0 {
		t.Errorf("%v, %v", not, err)
	}
}

// A time that is none, on one rank and in one replay, is a point's fault and no cost.
func TestNoTimeIsNoCost(t *testing.T) {
	for _, us := range []string{"", "0", "5,0,5", "5,-1"} {
		dir := t.TempDir()
		rank := "#!/bin/sh\nwhile read line; do case $* in *--rank\\ 1*) echo '{\"us\":[" + us + "]}';; *) echo '{\"us\":[5,5,5]}';; esac; done\n"
		program := filepath.Join(dir, "rank.sh")
		if err := os.WriteFile(program, []byte(rank), 0o700); err != nil {
			t.Fatal(err)
		}
		g, err := workers.Start(workers.Spec{Program: program, Ranks: 2, Nodes: 1, Logs: dir, Environ: os.Environ()})
		if err != nil {
			t.Fatal(err)
		}
		s := &Session{o: Config{Timeout: 10 * time.Second}, group: g}
		_, _, err = s.Measure(t.Context(), "AllReduce", 1024, 5, Thorough)
		fault := new(Fault)
		if !errors.As(err, &fault) || fault.Outcome != Failed || !strings.Contains(err.Error(), "rank 1 measured no time") {
			t.Errorf("[%s]: %v", us, err)
		}
		if err := g.Kill(); err != nil {
			t.Error(err)
		}
	}
}
