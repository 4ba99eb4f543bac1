package launch

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestScratchMiB(t *testing.T) {
	for s, want := range map[string]ScratchMiB{"1": 1, "64": 64, "4096": 4096, "0": 0, "4097": 0, "-1": 0, "64M": 0, "": 0, "1.5": 0, "0x10": 0, "99999999999": 0} {
		var m ScratchMiB
		if err := m.Set(s); (err == nil) != (want != 0) || m != want {
			t.Errorf("%q: %d, %v", s, m, err)
		}
	}
}

// The flag takes what ranks take, and says the same default.
func TestScratchIsThatOfRanks(t *testing.T) {
	source, err := os.ReadFile("../../../../kernels/host/memory.c")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{fmt.Sprintf("#define DEFAULT_MIB %d\n", DefaultScratchMiB), fmt.Sprintf("#define MOST_MIB %d\n", MostScratchMiB), `setting("` + ScratchVariable + `", 1, MOST_MIB, DEFAULT_MIB)`} {
		if !strings.Contains(string(source), line) {
			t.Errorf("kernels/host/memory.c has no %q", line)
		}
	}
}

// A flag is the user's last word, over the environment's; without one nothing is set.
func TestPrepareScratch(t *testing.T) {
	plugin := Plugin{"/l/" + tunerFile, "/l/" + profilerFile, "/l/" + preloadFile}
	value := func(s Setup) (values []string) {
		for _, v := range s.Variables {
			if v.Name == ScratchVariable {
				values = append(values, v.Value)
			}
		}
		return values
	}
	if got := value(Prepare(Wish{Plugin: plugin})); got != nil {
		t.Errorf("not given: %q", got)
	}
	given := Prepare(Wish{Plugin: plugin, ScratchMiB: 16})
	if got := value(given); len(got) != 1 || got[0] != "16" {
		t.Errorf("given: %q", got)
	}
	if environ := strings.Join(Environ([]string{ScratchVariable + "=8", "A=b"}, given.Variables), " "); strings.Contains(environ, ScratchVariable+"=8") {
		t.Errorf("the environment's stays: %s", environ)
	}
}
