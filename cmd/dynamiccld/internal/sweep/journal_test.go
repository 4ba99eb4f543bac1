package sweep

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
