package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// One file under two names is refused, however it is spelled: the policy would be removed as the checkpoint, or what is
// learned from overwritten.
func TestOneFileUnderTwoNames(t *testing.T) {
	w := newWorld(t)
	table, err := os.ReadFile(measurements + "h200x2-nvlink-quiet.csv")
	if err != nil {
		t.Fatal(err)
	}
	work, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(work, w.dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Symlink(w.dir, w.path("folder")), os.Symlink("new", w.path("dangling")), os.Symlink("t.csv", w.path("link.csv")),
		os.WriteFile(w.path("t.csv"), table, 0o600), os.WriteFile(w.path("training.csv"), table, 0o600), os.WriteFile(w.path("store.db"), nil, 0o600),
		os.Link(w.path("store.db"), w.path("hard"))); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"--out $DIR/q --checkpoint $DIR/./q":                              "--out and --checkpoint are the same file",
		"--out $DIR/q --checkpoint " + relative + "/q":                    "--out and --checkpoint are the same file",
		"--out $DIR/folder/q --checkpoint $DIR/q":                         "--out and --checkpoint are the same file",
		"--out $DIR/dangling --checkpoint $DIR/folder/new":                "--out and --checkpoint are the same file",
		"--out $DIR/folder/training.csv --curve $DIR":                     "--out and --curve's table are the same file",
		"--out $DIR/q --checkpoint $DIR/training.png --curve $DIR/folder": "--checkpoint and --curve's picture are the same file",
		"--out $DIR/q --checkpoint $DIR/.q.lock":                          "--checkpoint and the lock of --out are the same file",
		"--out $DIR/t.csv --traces $DIR/*.csv":                            "--out would overwrite $DIR/",
		"--out $DIR/q --checkpoint $DIR/t.csv --traces $DIR/l*":           "--checkpoint would overwrite $DIR/link.csv",
		"--out $DIR/q --curve $DIR --traces $DIR/folder/tr*":              "--curve's table would overwrite $DIR/folder/training.csv",
		"--out $DIR/hard --store $DIR/store.db":                           "--out would overwrite $DIR/store.db",
		"--out $DIR/folder/store.db --store $DIR/store.db":                "--out would overwrite $DIR/store.db",
	} {
		_, stderr, code := w.run("--synthetic 1 " + line)
		if code != exitUsage || !strings.Contains(stderr, strings.ReplaceAll(want, "$DIR", w.dir)) {
			t.Errorf("%s: exit %d: %s", line, code, stderr)
		}
	}
	if len(w.fakes) > 0 {
		t.Error("training began")
	}
	w.must("--updates 300 --out $DIR/q --checkpoint $DIR/c --curve $DIR/curve --traces $DIR/*.csv")
	if w.policy("q").Updates != 300 || string(w.read("t.csv")) != string(table) {
		t.Error("files that differ were taken for one")
	}
}
