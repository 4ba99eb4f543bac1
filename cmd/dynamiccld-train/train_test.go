package main

import (
	"bytes"
	"strings"
	"testing"

	"dynamiccl/cmd/internal/wholefile"
)

// TestResumedRunHasTheSameBytes trains 4 updates at once, with two threads, and with one thread as 2, a signal, and 2
// more. Validation is due after 3 and 4: the one that the signal causes must leave no trace. So this is same seed, same
// bytes too. Few runs of few updates, since each takes seconds under the race detector.
func TestResumedRunHasTheSameBytes(t *testing.T) {
	w := newWorld(t)
	w.start = newTrainer
	line := "--quiet --traces " + twoTables + " --updates 4 --pretrain 1 --validate-every 3 "
	w.must(line + "--threads 2 --out $DIR/whole --curve $DIR/whole.curve")
	w.wrap = stopAfter(2)
	parts := "--threads 1 --out $DIR/parts --curve $DIR/parts.curve "
	stdout, stderr, code := w.run(line + parts)
	if code != exitInterrupted || !strings.Contains(stderr, "stopped after update 2 of 4") || !strings.Contains(stdout, "2 of 4 updates") {
		t.Fatalf("exit %d: %s%s", code, stdout, stderr)
	}
	if card := w.policy("parts"); card.Updates != 2 || !(card.Results["validation_regret"] > 0) {
		t.Errorf("the policy of the stopped run: %+v", card)
	}
	w.wrap = nil
	w.refusesOthers(line + parts)
	w.must(line + parts + "--resume")
	if !bytes.Equal(w.read("whole"), w.read("parts")) {
		t.Error("the resumed run's policy differs from that of the unbroken one")
	}
	if whole, parts := w.read("whole.curve/training.csv"), w.read("parts.curve/training.csv"); !bytes.Equal(whole, parts) {
		t.Errorf("curve of the unbroken run\n%s\nof the resumed one\n%s", whole, parts)
	}
	if w.has("whole.ckpt") || w.has("parts.ckpt") {
		t.Error("a finished run left its checkpoint")
	}
}

// refusesOthers tries to go on from the checkpoint with another run, or from a damaged one.
func (w *world) refusesOthers(line string) {
	w.t.Helper()
	for args, want := range map[string]string{
		"":                            "--resume goes on with it",
		"--resume --seed 2":           "another recipe, with seed 1, not 2: ",
		"--resume --validate-every 7": "--validate-every 3",
		"--resume --hold-out socket":  "other tables",
	} {
		if _, stderr, code := w.run(line + args); code == exitOK || !strings.Contains(stderr, want) {
			w.t.Errorf("%q: exit %d: %s", args, code, stderr)
		}
	}
	whole := w.read("parts.ckpt")
	flipped := bytes.Clone(whole)
	flipped[0] ^= 1
	flippedInside := bytes.Clone(whole)
	flippedInside[len(whole)-100] ^= 1
	for _, damaged := range [][]byte{whole[:len(whole)-40], whole[:2], {}, flipped, flippedInside, append(bytes.Clone(whole), 0)} {
		if err := wholefile.Write(w.path("parts.ckpt"), damaged); err != nil {
			w.t.Fatal(err)
		}
		if _, stderr, code := w.run(line + "--resume"); code != exitFailed || !strings.Contains(stderr, "bad checkpoint") ||
			!strings.Contains(stderr, w.path("parts.ckpt")) || !strings.Contains(stderr, "restore the file") || !strings.Contains(stderr, "start anew") {
			w.t.Errorf("%d bytes of a checkpoint: exit %d: %s", len(damaged), code, stderr)
		}
	}
	if err := wholefile.Write(w.path("parts.ckpt"), whole); err != nil {
		w.t.Fatal(err)
	}
}
