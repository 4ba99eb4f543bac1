package launch

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestScratchMiB(t *testing.T) {
	for s, want := range map[string]int{"1": 1, "64": 64, "4096": 4096, "0": 0, "4097": 4097, "65536": 65536, "65537": 0, "-1": 0, "+1": 0, "64M": 0, "": 0, "1.5": 0, "0x10": 0, "99999999999": 0} {
		var m ScratchMiB
		var total ScratchTotalMiB
		if err := total.Set(s); (err == nil) != (want != 0) || int(total) != want {
			t.Errorf("in total %q: %d, %v", s, total, err)
		}
		if want > MostScratchMiB {
			want = 0
		}
		if err := m.Set(s); (err == nil) != (want != 0) || int(m) != want {
			t.Errorf("%q: %d, %v", s, m, err)
		}
	}
}

// The flags take what ranks take, and say the same defaults.
func TestScratchIsThatOfRanks(t *testing.T) {
	for file, lines := range map[string][]string{
		"memory.c": {fmt.Sprintf("#define DEFAULT_MIB %d\n", DefaultScratchMiB), fmt.Sprintf("#define MOST_MIB %d\n", MostScratchMiB), `setting("` + ScratchVariable + `", 1, MOST_MIB, DEFAULT_MIB)`},
		"room.c": {fmt.Sprintf("#define DEFAULT_TOTAL_MIB %d\n", DefaultScratchTotalMiB), fmt.Sprintf("#define MOST_TOTAL_MIB %d\n", MostScratchTotalMiB),
			`setting("` + ScratchTotalVariable + `", 1, MOST_TOTAL_MIB, `},
	} {
		source, err := os.ReadFile("../../../../kernels/host/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			if !strings.Contains(string(source), line) {
				t.Errorf("kernels/host/%s has no %q", file, line)
			}
		}
	}
}

// A flag is the user's last word, over the environment's; without one nothing is set.
func TestPrepareScratch(t *testing.T) {
	plugin := Plugin{"/l/" + tunerFile, "/l/" + profilerFile, "/l/" + preloadFile}
	for name, wish := range map[string]Wish{ScratchVariable: {Plugin: plugin, ScratchMiB: 16}, ScratchTotalVariable: {Plugin: plugin, ScratchTotal: 16}} {
		value := func(s Setup) (values []string) {
			for _, v := range s.Variables {
				if v.Name == name {
					values = append(values, v.Value)
				}
			}
			return values
		}
		if got := value(Prepare(Wish{Plugin: plugin})); got != nil {
			t.Errorf("%s is not given: %q", name, got)
		}
		given := Prepare(wish)
		if got := value(given); len(got) != 1 || got[0] != "16" {
			t.Errorf("%s is given: %q", name, got)
		}
		if environ := strings.Join(Environ([]string{name + "=8", "A=b"}, given.Variables), " "); strings.Contains(environ, name+"=8") {
			t.Errorf("the environment's stays: %s", environ)
		}
	}
}
