package fakegputest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"dynamiccl/internal/testbuild"
)

type question struct {
	Of         string
	Bytes      int
	NumPipeOps int
}

// questionsOf reads lines of asked.sh: of each case how often what was asked.
func questionsOf(t *testing.T, lines []byte, nccl int) map[string]map[question]int {
	t.Helper()
	got := map[string]map[question]int{}
	for lines := bufio.NewScanner(bytes.NewReader(lines)); lines.Scan(); {
		var line struct {
			NCCL  int
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
		if line.NCCL != nccl {
			continue
		}
		if line.Wrong == nil || *line.Wrong != 0 {
			t.Errorf("wrong: %s", lines.Bytes())
		}
		got[line.Case] = map[question]int{}
		for _, asked := range line.Asked {
			got[line.Case][asked.question] += asked.Times
		}
	}
	return got
}

// What nccltuner/gputest/asked.sh says of the stand-in for NCCL is what it said of two H100. The stand-in takes no broadcasts of one root together.
func TestAsked(t *testing.T) {
	measured, err := filepath.Abs(table)
	if err != nil {
		t.Fatal(err)
	}
	recorded, err := os.ReadFile("../../docs/figures/gpu-asked-2gpus-h100-2026-11-26-cf340b36.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	alike := []string{"one broadcast", "two roots of other sizes", "two roots, one of no bytes", "an AllGather"}
	kernel := []string{"two roots", "two roots, the other one first", "two roots of 1 MiB", "eight of two roots", "two roots and an AllReduce", "two roots and an AllGather"} // from 2.29 on
	for nccl, cases := range map[string][]string{"2.28.9": alike, "2.32.3": append(kernel, alike...)} {
		t.Run(nccl, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte("#!/bin/sh\n"), 0o700); err != nil { // is asked for, and asked nothing
				t.Fatal(err)
			}
			cmd := testbuild.Command(ctx, "../gputest/asked.sh", append([]string{filepath.Join(dir, "asked.jsonl")}, cases...)...)
			cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "TMPDIR=" + dir, "LD_LIBRARY_PATH=" + build, "LD_PRELOAD=" + filepath.Join(build, "libclock.so"),
				"FAKEGPU_DIR=" + dir, "FAKEGPU_TABLE=" + measured, "FAKEGPU_OPTIONS=--nccl " + nccl}
			cmd.Stderr = os.Stderr
			said, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			version := map[string]int{"2.28.9": 22809, "2.32.3": 23203}[nccl]
			got, want := questionsOf(t, said, version), questionsOf(t, recorded, version)
			for _, name := range cases {
				if len(want[name]) == 0 || !maps.Equal(got[name], want[name]) {
					t.Errorf("%s: asked %v, two H100 %v", name, got[name], want[name])
				}
			}
		})
	}
}
