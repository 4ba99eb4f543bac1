package units_test

import (
	"os/exec"
	"testing"

	"dynamiccl/cmd/dynamiccld/internal/units"
)

// What Quote and Word make of a text a shell reads as one word, the text itself.
func TestShellWords(t *testing.T) {
	for _, s := range []string{"", "/run/dynamiccl", "two words", "it's", "$HOME", "~", "a;b", "*", "`x`", "new\nline", `back\slash`, `"`, "-n", "ü"} {
		for name, word := range map[string]string{"Quote": units.Quote(s), "Word": units.Word(s)} {
			out, err := exec.Command("sh", "-c", "printf %s:%s "+word+" end").Output()
			if err != nil || string(out) != s+":end" {
				t.Errorf("%s of %q is %s, which a shell reads as %q, %v", name, s, word, out, err)
			}
		}
	}
	if w := units.Word("/var/lib/dynamiccl/store.db"); w != "/var/lib/dynamiccl/store.db" {
		t.Errorf("%s needs no quotes", w)
	}
}
