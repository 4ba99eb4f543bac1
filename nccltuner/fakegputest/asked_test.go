package fakegputest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// What nccltuner/gputest/asked.sh says of the stand-in for NCCL, which asks about each broadcast for itself.
func TestAsked(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	measured, err := filepath.Abs(table)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(ctx, "../gputest/asked.sh", filepath.Join(dir, "asked.jsonl"), "two roots of other sizes", "two roots and an AllGather", "two roots and an AllReduce")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir, "LD_LIBRARY_PATH=" + build, "LD_PRELOAD=" + filepath.Join(build, "libclock.so"),
		"FAKEGPU_DIR=" + dir, "FAKEGPU_TABLE=" + measured, "FAKEGPU_OPTIONS=--nccl 2.30.7"}
	cmd.Stderr = os.Stderr
	said, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	type question struct {
		Of    string
		Bytes int
	}
	got := map[string]map[question]int{}
	for lines := bufio.NewScanner(bytes.NewReader(said)); lines.Scan(); {
		var line struct {
			Case  string
			Asked []struct {
				question
				Times int
			}
			Wrong *int
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("%v: %s", err, lines.Bytes())
		}
		if line.Wrong == nil || *line.Wrong != 0 {
			t.Errorf("wrong: %s", lines.Bytes())
		}
		got[line.Case] = map[question]int{}
		for _, asked := range line.Asked {
			got[line.Case][asked.question] += asked.Times
		}
	}
	const ranks = 2
	for name, want := range map[string]map[question]int{
		"two roots of other sizes":   {{"Broadcast", 1 << 10}: ranks, {"Broadcast", 64 << 10}: ranks},
		"two roots and an AllGather": {{"Broadcast", 1 << 10}: 2 * ranks, {"AllGather", 2 << 10}: ranks},
		"two roots and an AllReduce": {{"Broadcast", 1 << 10}: 2 * ranks, {"AllReduce", 1 << 10}: ranks},
	} {
		for asked, times := range want {
			if got[name][asked] != times {
				t.Errorf("%s: asked %d times about %v, want %d: %v", name, got[name][asked], asked, times, got[name])
			}
		}
		if len(got[name]) != len(want) {
			t.Errorf("%s: asked %v, want %v", name, got[name], want)
		}
	}
}
