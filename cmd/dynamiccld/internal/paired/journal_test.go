package paired

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Lines go behind those of an earlier run, also behind one that was cut off, and into no file of another kind.
func TestJournalGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	for before, want := range map[string]string{
		"":                        "{\"kind\":\"x\"}\n",
		"{\"kind\":\"head\"}\n":   "{\"kind\":\"head\"}\n{\"kind\":\"x\"}\n",
		"{\"kind\":\"rounds\",\"": "{\"kind\":\"rounds\",\"\n{\"kind\":\"x\"}\n",
		"machine,transport\n1,2":  "",
		"{\n  \"name\": 1\n}\n":   "",
	} {
		if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := openJournal(path)
		if want == "" {
			if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "name another") {
				t.Errorf("into %q: %v", before, err)
			}
			want = before
		} else if err != nil {
			t.Fatal(err)
		} else {
			err = j.add(map[string]string{"kind": "x"})
			if closing := j.close(); err != nil || closing != nil {
				t.Fatal(err, closing)
			}
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			t.Errorf("behind %q: %q, %v; want %q", before, text, err, want)
		}
	}
}

// Lines say nothing of whose they are: a file is one run's until that ends. A device has no lines to be kept apart.
func TestJournalOfOneRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	first, err := openJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openJournal(path); err == nil || !strings.Contains(err.Error(), path+" is being written by another run") {
		t.Errorf("a second run: %v", err)
	}
	if err := first.close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{path, os.DevNull, os.DevNull} {
		next, err := openJournal(path)
		if err != nil {
			t.Fatal(err)
		}
		defer next.close()
	}
}

func TestJournalThatCannotBeWritten(t *testing.T) {
	if _, err := openJournal(filepath.Join(t.TempDir(), "missing", "out")); err == nil || !strings.Contains(err.Error(), "missing/out") || !strings.Contains(err.Error(), "in a folder that exists") {
		t.Error(err)
	}
	full, err := openJournal("/dev/full")
	if err != nil {
		t.Fatal(err)
	}
	if err := full.add("x"); err == nil || !strings.Contains(err.Error(), "--out: write /dev/full: ") || !strings.Contains(err.Error(), "make room, or give another file") {
		t.Error(err)
	}
	if again, closing := full.add("y"), full.close(); again != nil || closing != nil {
		t.Errorf("once it is said: %v, %v", again, closing)
	}
}
