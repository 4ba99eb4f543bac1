package sweep

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What can be no sweep's file is refused before ranks start, and nothing is left beside it.
func TestOutThatCanBeNone(t *testing.T) {
	dir := t.TempDir()
	folder, link := filepath.Join(dir, "table"), filepath.Join(dir, "null.csv")
	if err := errors.Join(os.Mkdir(folder, 0o700), os.Symlink("/dev/null", link)); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	for path, why := range map[string]string{folder: "it is not a plain file", folder + ".csv/": "its folder is not there", link: "it is not a plain file",
		filepath.Join(dir, "missing", "t.csv"): "in a folder that exists"} {
		o := w.options()
		o.Out, o.Executable, o.Worker = path, "/nowhere", "/nowhere"
		if err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "--out") || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("%v, %v", left, err)
	}
}

// What is no journal is left as it is, and said in one line.
func TestJournalOfSomethingElse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.points.jsonl")
	for text, why := range map[string]string{"garbage\n": "invalid character 'g'", "{}\n": "it names no collective or outcome"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := openJournal(path, false)
		if err == nil || !strings.Contains(err.Error(), path+": line 1 is no point of a sweep ("+why) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", text, err)
		}
		if left, err := os.ReadFile(path); err != nil || string(left) != text {
			t.Errorf("%q became %q, %v", text, left, err)
		}
	}
	// Without an end of line it may be the first point of a sweep that was killed, or somebody's.
	for text, own := range map[string]bool{"": true, `{"rou`: true, `{"round":1,"collective":"AllR`: true, `{"name":"x"}`: false, "garbage": false} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := openJournal(path, false)
		if (err == nil) != own || !own && !strings.Contains(err.Error(), path+": line 1 is no point of a sweep") {
			t.Errorf("%q: %v", text, err)
		}
		if err == nil {
			err = j.file.Close()
		}
		if left, err2 := os.ReadFile(path); own && err != nil || err2 != nil || !own && string(left) != text {
			t.Errorf("%q became %q, %v, %v", text, left, err, err2)
		}
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	j := journal{file: full, at: map[pointKey]int{}}
	if err := j.add(Point{}); err == nil || !strings.HasPrefix(err.Error(), "--out: write /dev/full: ") || !strings.Contains(err.Error(), "make room and run the same command again") {
		t.Error(err)
	}
}

// Beside a table that the sweep refuses to write over nothing stays.
func TestRefusedTableKeepsItsFolder(t *testing.T) {
	p := pathsOf(filepath.Join(t.TempDir(), "t.csv"))
	if err := os.WriteFile(p.table, []byte("somebody's"), 0o600); err != nil {
		t.Fatal(err)
	}
	j, err := openJournal(p.journal, false)
	if err != nil {
		t.Fatal(err)
	}
	defer j.file.Close()
	if err := claim(p, &Description{}, len(j.points)); !errors.Is(err, errOther) {
		t.Fatal(err)
	}
	if err := j.dropEmpty(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Dir(p.table)); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
	if err := os.WriteFile(p.journal, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	full := journal{}
	if full.file, err = os.Open(p.journal); err != nil {
		t.Fatal(err)
	}
	defer full.file.Close()
	if _, statErr := os.Stat(p.journal); full.dropEmpty() != nil || statErr != nil {
		t.Error("a journal with lines went")
	}
}

// One that is taken away between opening and locking would be written for nobody.
func TestJournalThatWasTakenAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.points.jsonl")
	for _, again := range []bool{false, true} { // there is nothing; somebody has made it again
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if again {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := takeJournal(f, path); err == nil || !strings.Contains(err.Error(), path+" was taken away") {
			t.Errorf("made again: %v: %v", again, err)
		}
	}
}
