package service

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The log that nobody rotates stays small and has the newest lines; others are nobody's to cut.
func TestLogIsBounded(t *testing.T) {
	const most, lines = 10_000, 2000
	path := filepath.Join(t.TempDir(), "log")
	for name, flags := range map[string]int{"appended to": os.O_APPEND, "written at a place": 0} {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|flags, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		log, _ := NewLog(Bounded(file, most), "text", "info")
		for i := range lines {
			log.Info("line", "number", i)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		bounded := flags != 0
		if got := strings.Count(string(text), "msg=line") < lines && len(text) < most+200; got != bounded {
			t.Errorf("a file that is %s: %d bytes", name, len(text))
		}
		if bounded != strings.HasPrefix(string(text), "10") || !strings.HasSuffix(string(text), "number=1999\n") {
			t.Errorf("a file that is %s: %.80q ... %q", name, text, text[len(text)-30:])
		}
	}
	if b := new(bytes.Buffer); Bounded(b, most) != io.Writer(b) {
		t.Error("what is no file is bounded")
	}
}
