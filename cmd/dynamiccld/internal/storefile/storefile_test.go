package storefile

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/rulefile"
	"dynamiccl/state"
	"dynamiccl/tuner/store"
)

// TestRulesGoThroughTheStore: what is imported is what is exported.
func TestRulesGoThroughTheStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	rules := []actions.Rule{
		{Collective: actions.AllGather, MinBytes: 1 << 20, MaxBytes: 1<<24 - 1, Algorithm: actions.Ring, Protocol: actions.LL128, Channels: 24, Nodes: 1, Ranks: 8, PipeOps: -1, RegBuff: -1},
		{Collective: actions.AllReduce, MinBytes: 1, MaxBytes: 65535, Algorithm: actions.Tree, Protocol: actions.LL, Nodes: 1, Ranks: 8, PipeOps: -1, RegBuff: -1},
	}
	changes, err := Import{Rules: rules, Target: Target{Machine: "m", NCCLVersion: 23007}, Shapes: []state.Shape{{Ranks: 8, Nodes: 1}}}.Into(path)
	n := len(changes)
	if err != nil || n != 4+16 {
		t.Fatalf("%d, %v", n, err)
	}
	buckets, bad, err := Read(path, time.Now())
	if err != nil || len(bad) != 0 || len(buckets) != n {
		t.Fatalf("%d buckets, bad %v, %v", len(buckets), bad, err)
	}
	if b := buckets[0]; b.Machine != "m" || b.NCCLVersion != "2.30.7" || b.SpeedUp != 1 || !strings.Contains(b.Note, "not measured") {
		t.Errorf("%+v", b)
	}
	back, err := rulefile.Rules(buckets)
	if err != nil || !reflect.DeepEqual(back, rules) {
		t.Errorf("got  %+v, %v\nwant %+v", back, err, rules)
	}
}

// TestStartingPointIsTried: a learner must see a reason to try the choice, and the daemon must see that it is no
// measurement.
func TestStartingPointIsTried(t *testing.T) {
	ring := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring}
	l := Starting(actions.BucketChoice{Collective: actions.AllReduce, Log2Bytes: 3, Action: ring}, Target{}, state.Shape{Ranks: 2, Nodes: 1})
	if l.Calls != 0 || l.Evidence[ring].MeanNs >= l.Evidence[actions.Default].MeanNs || l.Evidence[ring].N != 1 || l.CostNs != l.Evidence[ring].MeanNs {
		t.Errorf("%+v", l)
	}
}

func TestReadDoesNotChangeTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	if _, _, err := Read(path, time.Now()); !errors.Is(err, store.ErrMissing) {
		t.Errorf("missing: %v", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("reading made a file: %v", err)
	}
	if _, err := (Import{}).Into(path); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if buckets, _, err := Read(path, time.Now()); err != nil || len(buckets) != 0 {
		t.Errorf("%v, %v", buckets, err)
	}
	after, err := os.ReadFile(path)
	if err != nil || string(before) != string(after) {
		t.Errorf("reading changed the file: %v", err)
	}
}

// TestDaemonHasTheFile: a store in use is neither read nor written behind the daemon's back.
func TestDaemonHasTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	s, err := store.Open(path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := (Import{}).Into(path); !errors.Is(err, store.ErrLocked) {
		t.Errorf("import: %v", err)
	}
	if _, _, err := Read(path, time.Now()); !errors.Is(err, store.ErrLocked) {
		t.Errorf("read: %v", err)
	}
}

func TestImportRefusesWhatTheStoreRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	rules := []actions.Rule{{MaxBytes: 9, Algorithm: actions.Ring, Nodes: -1, Ranks: -1, PipeOps: -1, RegBuff: -1}}
	if changes, err := (Import{Rules: rules, Shapes: []state.Shape{{Ranks: 0, Nodes: 1}}}).Into(path); !errors.Is(err, store.ErrInvalid) || len(changes) != 0 {
		t.Errorf("%v, %v", changes, err)
	}
}
