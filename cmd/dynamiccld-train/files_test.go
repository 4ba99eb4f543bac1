package main

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What cannot be written is found before training, and says which file.
func TestUnwritableIsFoundAtTheStart(t *testing.T) {
	w := newWorld(t)
	if err := os.WriteFile(w.path("file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(w.path("folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"--out $DIR/missing/p":                     "writing $DIR/missing/p: no such file or directory; name a file in a folder that exists",
		"--out $DIR/folder":                        "not a plain file",
		"--out $DIR/file/p":                        "not a directory",
		"--out $DIR/p --checkpoint $DIR/missing/c": "writing $DIR/missing/c",
		"--out $DIR/p --curve $DIR/file":           "folder of the curve",
		"--out /proc/p":                            "writing /proc/p",
	} {
		_, stderr, code := w.run("--synthetic 1 " + line)
		if code != exitFailed || !strings.Contains(stderr, strings.ReplaceAll(want, "$DIR", w.dir)) {
			t.Errorf("%s: exit %d: %s", line, code, stderr)
		}
	}
	if len(w.fakes) > 0 {
		t.Error("training began")
	}
	if err := writable(w.path("p"), 1<<60); !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "KiB free") {
		t.Errorf("a full disk: %v", err)
	}
	if left, err := os.ReadDir(w.dir); err != nil || len(left) != 2 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A file that is no policy, as a script or a table whose name was given for one, is left as it is.
func TestForeignFileIsKept(t *testing.T) {
	w := newWorld(t)
	const script = "#!/bin/sh\nexit 0\n"
	if err := errors.Join(os.WriteFile(w.path("script"), []byte(script), 0o600), os.WriteFile(w.path("empty"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	_, stderr, code := w.run("--synthetic 1 --updates 2 --out $DIR/script")
	if want := "--out would overwrite " + w.path("script") + ", which is not a policy file: name another file, or remove it"; code != exitUsage || !strings.Contains(stderr, want) {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if now, err := os.ReadFile(w.path("script")); err != nil || string(now) != script {
		t.Errorf("the script has %d bytes now, %v", len(now), err)
	}
	for range 2 { // the second one replaces a policy
		if _, stderr, code := w.run("--synthetic 1 --updates 2 --out $DIR/empty"); code != 0 {
			t.Errorf("exit %d: %s", code, stderr)
		}
	}
}

// A checkpoint or curve that cannot be written costs itself, not the training; a policy that cannot be leaves the
// checkpoint.
func TestDiskFailsDuringTraining(t *testing.T) {
	w := newWorld(t)
	w.change = func(f *fake) {
		f.step = func(update int) (float64, float64, error) {
			if update == 150 { // in the way of the renames
				for _, name := range []string{"c/x", "curve/training.png/x", "p/x"} {
					if err := errors.Join(os.RemoveAll(w.path(strings.TrimSuffix(name, "/x"))), os.MkdirAll(w.path(name), 0o700)); err != nil {
						t.Error(err)
					}
				}
			}
			return 1, 1, nil
		}
	}
	_, stderr, code := w.run("--synthetic 1 --updates 300 --validate-every 100 --out $DIR/p --checkpoint $DIR/c --curve $DIR/curve")
	for _, want := range []string{"writing " + w.path("c"), "writing " + w.path("curve/training.png"), "training goes on without", "writing " + w.path("p")} {
		if !strings.Contains(stderr, want) {
			t.Errorf("%q is not said:\n%s", want, stderr)
		}
	}
	if code != exitFailed || w.fakes[0].update != 300 {
		t.Errorf("exit %d after %d updates", code, w.fakes[0].update)
	}
	w = newWorld(t)
	w.change = func(f *fake) {
		f.step = func(update int) (float64, float64, error) {
			if update == 150 {
				if err := os.MkdirAll(w.path("p/x"), 0o700); err != nil {
					t.Error(err)
				}
			}
			return 1, 1, nil
		}
	}
	line := "--synthetic 1 --updates 300 --out $DIR/p --checkpoint $DIR/c "
	if _, stderr, code := w.run(line); code != exitFailed || !w.has("c") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if err := os.RemoveAll(w.path("p")); err != nil {
		t.Fatal(err)
	}
	w.must(line + "--resume")
	if w.fakes[1].update != 300 || len(w.fakes[1].curve) != 0 || w.has("c") || w.policy("p").Updates != 300 {
		t.Errorf("what was left: %+v", w.fakes[1])
	}
}
