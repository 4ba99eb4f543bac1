package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The recorded tables, as an outsider runs them: every row has the keys that outsiders read, whatever the workers.
func TestEvalOfRecordedTables(t *testing.T) {
	w := newWorld(t)
	const folder = "../../tuner/tunersim/testdata/measurements/h200x4-socket-2nodes-"
	tables := folder + "quiet.csv --traces " + folder + "network-*.csv --traces " + folder + "cpu-load.csv"
	run := func(more string) []string {
		out, code := w.run("eval --traces "+tables+" --calls 16 --seeds 2 --noise 0.15 --json "+more, "")
		if code != exitOK {
			t.Fatalf("exit %d: %s", code, out)
		}
		return strings.Split(strings.TrimSpace(out), "\n")
	}
	one := run("--learners ucb,oracle,default,static --jobs 1")
	if many := run("--learners static,ucb,default,oracle,ucb --jobs 5"); !slices.Equal(one, many) {
		t.Error("rows depend on the order of learners or on the number of jobs")
	}
	if len(one) != 9*4*2 { // 3 conditions and 6 changes
		t.Errorf("%d rows", len(one))
	}
	for _, line := range one {
		var row map[string]any
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"trace", "condition", "learner", "seed", "calls", "cost_over_oracle", "final_over_oracle", "cost_over_default",
			"worst_window100_over_default", "calls_to_within_5pct"} {
			if _, ok := row[key]; !ok {
				t.Fatalf("no %s in %s", key, line)
			}
		}
		if _, ok := row["bytes"]; ok {
			t.Fatalf("a row over all buckets has a size: %s", line)
		}
		if row["learner"] == "oracle" && row["cost_over_oracle"] != 1.0 || row["learner"] == "default" && row["cost_over_default"] != 1.0 {
			t.Errorf("%s", line)
		}
	}
	if buckets := run("--learners oracle --jobs 2 --per-bucket"); len(buckets) != 2*(18+18+4+2*18+4*4) {
		t.Errorf("%d rows of buckets", len(buckets))
	}
}

func TestEvalPlotsAndNamesLearners(t *testing.T) {
	w := newWorld(t)
	const folder = "../../tuner/tunersim/testdata/measurements/h200x4-socket-2nodes-"
	tables := folder + "cpu-load.csv --traces " + folder + "network-load.csv"
	out, code := w.run("eval --traces "+tables+" --calls 16 --seeds 1 --learners oracle,default --plot $ROOT/curves", "")
	if code != exitOK || !strings.Contains(out, "wrote 4 plots") {
		t.Errorf("exit %d: %s", code, out)
	}
	if files, err := filepath.Glob(filepath.Join(w.root, "curves", "*.png")); err != nil || len(files) != 4 {
		t.Errorf("%q, %v", files, err)
	}
	out, code = w.run("eval --traces "+folder+"cpu-load.csv --calls 16 --seeds 1 --learners oracle,default --plot $ROOT/one", "")
	if code != exitOK || !strings.Contains(out, "wrote 1 plot into") {
		t.Errorf("exit %d: %s", code, out)
	}
	out, code = w.run("eval --traces "+tables+" --learners nobody", "")
	if code != exitUsage || !strings.Contains(out, `learner "nobody"`) {
		t.Errorf("exit %d: %s", code, out)
	}
	for _, n := range evalLearners() {
		if !strings.Contains(out, n) {
			t.Errorf("%s is not offered: %s", n, out)
		}
	}
}

func TestEvalStops(t *testing.T) {
	var out strings.Builder
	a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: &out, getenv: os.Getenv}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	code := a.main(ctx, []string{"eval", "--traces", "../../tuner/tunersim/testdata/measurements/h200x8-nvlink.csv"})
	if code != exitFailed || !strings.Contains(out.String(), "stopped after 0 of ") {
		t.Errorf("exit %d: %s", code, &out)
	}
}
